package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Answers that are damaged on their way look like a store that lacks a property. A broker that knows its bucket asks again.
func TestDamagedAnswersDoNotEndAStart(t *testing.T) {
	const damaged = 3
	fault := bucket.NewFault(bucket.NewMemory(), nil)
	gets := 0
	fault.SetPlan(func(c bucket.Call) bucket.Action {
		if c.Verb != "get" || c.Key == "cluster/root" {
			return bucket.Action{}
		}
		gets++
		return bucket.Action{Flip: gets <= damaged}
	})
	d := &daemon{log: zap.NewNop(), bucket: fault, dir: &dataDir{}}
	err := d.checkBucket(t.Context())
	require.ErrorIs(t, err, bucket.ErrProbe)
	require.NoError(t, d.probeAgain(t.Context(), err))
	require.Greater(t, gets, damaged)

	fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Before: bucket.ErrUnavailable} })
	again := d.probeAgain(t.Context(), err)
	require.ErrorIs(t, again, bucket.ErrUnavailable, "it starts without a bucket that doesn't answer")
	require.False(t, errors.Is(again, bucket.ErrProbe))
}
