package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestSessionLivesAndEnds(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	c := startClient(t, etcd)
	s, err := c.Register(ctx, Broker{ID: 3, Incarnation: "run-1", Identity: "disk", Labels: []string{"x"}}, 2*time.Second)
	require.NoError(t, err)
	b, ok := c.Image().Broker(3)
	require.True(t, ok)
	require.True(t, b.HasLabel("x"))
	require.Equal(t, s.Lease(), b.Lease)
	require.Equal(t, 2*time.Second, s.TTL())
	require.LessOrEqual(t, s.ValidFor(time.Now()), s.TTL())

	// It outlives its time to live because it is renewed.
	start := time.Now()
	require.Eventually(t, func() bool { return s.ValidFor(start) > s.TTL()+time.Second }, 10*time.Second, 10*time.Millisecond)
	_, ok = c.Image().Broker(3)
	require.True(t, ok)

	b.Draining = true
	require.NoError(t, s.Update(ctx, b))
	b, _ = c.Image().Broker(3)
	require.True(t, b.Draining)

	// Somebody else takes the lease away: the session says so, and the record is gone.
	_, err = etcd.Revoke(ctx, clientv3.LeaseID(s.Lease()))
	require.NoError(t, err)
	select {
	case <-s.Done():
	case <-ctx.Done():
		require.FailNow(t, "the loss was not noticed")
	}
	require.LessOrEqual(t, s.ValidFor(time.Now()), time.Duration(0))
	require.ErrorIs(t, s.Update(ctx, b), ErrSessionLost)
	_, err = c.Campaign(ctx, s, 3)
	require.ErrorIs(t, err, ErrSessionLost)
	require.NoError(t, s.Close())
	_, err = c.Wait(ctx, c.Image().Revision()-1)
	require.NoError(t, err)
	require.Empty(t, c.Image().Brokers())
}

func TestRegistrationIsTakenOverByTheSameDisk(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	old := register(t, c, 1, "run-1")
	term, err := c.Campaign(ctx, old, 1)
	require.NoError(t, err)
	_, err = c.Register(ctx, Broker{ID: 1, Incarnation: "x", Identity: "another disk"}, 5*time.Second)
	require.ErrorIs(t, err, ErrBrokerIDInUse)
	require.True(t, term.Holds(c.Image()), "the refused one left nothing behind")
	_, err = c.Register(ctx, Broker{ID: 1}, 5*time.Second)
	require.Error(t, err, "no incarnation")

	start := time.Now()
	fresh := register(t, c, 1, "run-2")
	require.Less(t, time.Since(start), 3*time.Second, "it does not wait for the lease to end")
	b, _ := c.Image().Broker(1)
	require.Equal(t, "run-2", b.Incarnation)
	require.False(t, term.Holds(c.Image()), "the earlier run's term ended with its lease")
	select {
	case <-old.Done():
	case <-ctx.Done():
		require.FailNow(t, "the loss was not noticed")
	}
	require.NoError(t, fresh.Close())
	require.NoError(t, fresh.Close())
}

func TestTermsFollowEachOther(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	a, b := startClient(t, etcd), startClient(t, etcd)
	sa, sb := register(t, a, 1, "a"), register(t, b, 2, "b")
	first, err := a.Campaign(ctx, sa, 1)
	require.NoError(t, err)

	// A candidate that gives up leaves nothing behind.
	quick, cancel := context.WithCancel(ctx)
	cancel()
	_, err = b.Campaign(quick, sb, 2)
	require.Error(t, err)

	won := make(chan *Term, 1)
	go func() {
		term, err := b.Campaign(ctx, sb, 2)
		if err != nil {
			t.Errorf("campaign: %v", err)
		}
		won <- term
	}()
	require.Eventually(t, func() bool { return len(a.Image().candidates) == 2 }, 10*time.Second, time.Millisecond)
	require.Equal(t, int32(1), a.Image().ControllerID())
	require.NoError(t, sa.Close())
	second := <-won
	require.Greater(t, second.Revision(), first.Revision())
	require.Equal(t, int32(2), b.Image().ControllerID())
	require.ErrorIs(t, first.Apply(ctx, []Change{{New: Assignment{Target: NoBroker}}}), ErrNotLeader)
	require.NoError(t, second.Resign(ctx))
	require.Eventually(t, func() bool { return b.Image().ControllerID() == NoBroker }, 10*time.Second, time.Millisecond)
	third, err := b.Campaign(ctx, sb, 2)
	require.NoError(t, err, "one may stand again")
	require.Greater(t, third.Revision(), second.Revision())
}

// TestRestartIsNotADeath: no image shows a broker as dead when its next run
// registers before the lease of the last one has ended.
func TestRestartIsNotADeath(t *testing.T) {
	ctx := testContext(t)
	etcd := startEtcd(t)
	c := startClient(t, etcd)
	first := register(t, c, 1, "run-1")
	from := c.Image().Revision()
	term := lead(t, c, first)
	register(t, c, 1, "run-2")
	<-first.Done()
	events := etcd.Watch(ctx, c.keys.broker(1), clientv3.WithRev(from+1))
	select {
	case r := <-events:
		require.NoError(t, r.Err())
		require.Len(t, r.Events, 1)
		require.Equal(t, clientv3.EventTypePut, r.Events[0].Type)
	case <-ctx.Done():
		require.FailNow(t, "no event")
	}
	b, ok := c.Image().Broker(1)
	require.True(t, ok)
	require.Equal(t, "run-2", b.Incarnation)
	img := c.Image()
	for term.Holds(img) {
		var err error
		img, err = c.Wait(ctx, img.Revision())
		require.NoError(t, err, "the earlier run's candidacy ends with its lease")
	}
}
