package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/kafka"
)

// A closed connection is told with each text once: the cause has a field of its own only where the sentence lacks it.
func TestConnectionFaultIsToldOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	on := kafkaEvent(zap.New(core), admin.NewMetrics("v", 0))
	cause := errors.New("the request ends too early")
	on(kafka.Event{Kind: kafka.EventHandler, Message: cause.Error(), Err: cause})
	on(kafka.Event{Kind: kafka.EventHandler, Message: fmt.Sprint("malformed Produce: ", cause), Err: cause})
	on(kafka.Event{Kind: kafka.EventHalfOpen, Message: "the client does not answer any longer", Err: cause})
	lines := logs.All()
	require.Len(t, lines, 3)
	require.NotContains(t, lines[0].ContextMap(), "error")
	require.NotContains(t, lines[1].ContextMap(), "error")
	require.Equal(t, cause.Error(), lines[2].ContextMap()["error"])
}
