package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every broker is stopped by SIGTERM and started again, under load: its partitions go to the others first, so that no record is
// refused after a client's own retries, and what was acknowledged is there once.
func TestClusterRollingRestart(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1})
	m.start()
	m.createTopic("load", 6, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &ledger{acked: map[string]int64{}}
	var wg sync.WaitGroup
	l.load(ctx, t, m.brokers[0].kafka, "load", 2, &wg)
	for _, b := range m.brokers {
		began := time.Now()
		b.stop()
		t.Logf("broker %d stopped in %v", b.id, time.Since(began).Round(time.Millisecond))
		require.Contains(t, b.out.String(), "no partition is left here")
		for _, p := range m.describe("load") {
			require.NotEqual(t, b.id, p.Leader, "partition %d", p.Partition)
		}
		b.start()
	}
	cancel()
	wg.Wait()
	require.Zero(t, l.fails.Load(), "records that were refused")
	l.verify(t, readTopic(t, m.brokers[0].kafka, "load"))
	t.Logf("%d records", l.count())
}
