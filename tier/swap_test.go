package tier

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestClaimRules(t *testing.T) {
	w := newWorld(t, 1)
	_, err := w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrNoHead)
	w.owner.Epoch = 5
	w.claim()
	require.Equal(t, []EpochStart{{Epoch: 5, Start: 0, Owner: "run-1"}}, w.h.Epochs)

	again, err := w.a.Claim(ctx(t), w.id, "logs", w.h, w.owner)
	require.NoError(t, err)
	require.Same(t, w.h, again)

	for _, o := range []Owner{{Broker: 2, Incarnation: "run-9", Epoch: 5}, {Broker: 1, Incarnation: "run-2", Epoch: 5}, {Broker: 1, Incarnation: "run-1", Epoch: 4}} {
		_, err := w.a.Claim(ctx(t), w.id, "logs", w.h, o)
		require.ErrorIs(t, err, ErrFenced, "%+v", o)
	}

	w.write(3)
	w.roll()
	stale := w.h
	w.write(2)
	w.roll()
	// A claim on an old head is applied to the newest one.
	o := Owner{Broker: 2, Incarnation: "run-2", Epoch: 7}
	h, err := w.a.Claim(ctx(t), w.id, "logs", stale, o)
	require.NoError(t, err)
	require.Equal(t, w.h.End, h.End)
	require.Equal(t, []EpochStart{{5, 0, "run-1"}, {7, h.End, "run-2"}}, h.Epochs)

	// The old owner is fenced whatever it tries.
	w.write(1)
	got, err := w.tryRoll(ctx(t), w.h)
	require.ErrorIs(t, err, ErrFenced)
	require.Equal(t, h.Version, got.Version)
	_, err = w.a.DeleteRecords(ctx(t), w.id, h, w.owner, 1, w.now)
	require.ErrorIs(t, err, ErrFenced)
	_, err = w.a.Claim(ctx(t), w.id, "logs", nil, w.owner)
	require.ErrorIs(t, err, ErrFenced)
}

func TestLateClaimKeepsEpochsOfLocalBatches(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(10)
	w.roll()
	end := w.h.End
	o := Owner{Broker: 1, Incarnation: "run-4", Epoch: 4}
	starts := []EpochStart{{2, end, "run-2"}, {3, end + 20, "run-3"}, {4, end + 50, "run-4"}}
	h, err := w.a.Claim(ctx(t), w.id, "logs", w.h, o, starts...)
	require.NoError(t, err)
	require.Equal(t, append([]EpochStart{{1, 0, "run-1"}}, starts...), h.Epochs)
	require.EqualValues(t, 1, h.EpochOf(end-1))
	require.EqualValues(t, 2, h.EpochOf(end))
	require.EqualValues(t, 4, h.EpochOf(end+1000))

	// An epoch without offsets is left out; those below a new start too, but for the one that holds it.
	h, err = w.a.Claim(ctx(t), w.id, "logs", h, Owner{1, "run-5", 5}, EpochStart{5, end + 50, "run-5"})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3, 5}, epochsOf(h))
	h, err = w.a.DeleteRecords(ctx(t), w.id, h, h.OwnerOf(), end+30, w.now)
	require.NoError(t, err)
	require.Equal(t, []int32{3, 5}, epochsOf(h))
}

func epochsOf(h *Head) []int32 {
	var out []int32
	for _, e := range h.Epochs {
		out = append(out, e.Epoch)
	}
	return out
}

func TestConflictIsAppliedAgainAndReported(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	old := w.h
	w.write(2)
	w.roll()
	h, err := w.a.Swap(ctx(t), w.id, old, func(h *Head) error { h.SafeClass = "sync"; return nil })
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, w.h.Attempt, h.Attempt)
	h, err = w.a.RaiseCeiling(ctx(t), w.id, old, w.owner, w.h.Ceiling)
	require.NoError(t, err)
	require.Equal(t, w.h.Version+1, h.Version)
	require.Equal(t, w.h.End, h.End)
}

func TestRacingOwnersHaveOneWinner(t *testing.T) {
	w := newWorld(t, 1)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = w.a.Claim(ctx(t), w.id, "logs", nil, Owner{Broker: int32(i), Incarnation: "x", Epoch: 3})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, ErrFenced)
	}
	require.Equal(t, 1, won)
}

func TestUnknownOutcomes(t *testing.T) {
	for name, after := range map[string]error{"timeout": errDown, "precondition": errCondition} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			f := bucket.NewFault(w.mem, bucket.Only(func(c bucket.Call) bool { return c.Verb == bucket.VerbPut }, bucket.FailAfterAt(1, after)))
			w.b = f
			w.open()
			w.claim() // had won
			require.Equal(t, int64(1), w.h.Version)
			h, err := w.a.Load(ctx(t), w.id)
			require.NoError(t, err)
			require.Equal(t, w.h.ETag(), h.ETag())
		})
	}
	t.Run("the same bytes are sent until the context ends", func(t *testing.T) {
		w := newWorld(t, 1)
		w.claim()
		puts := 0
		c, cancel := context.WithCancel(context.Background())
		f := bucket.NewFault(w.mem, func(call bucket.Call) bucket.Action {
			if call.Verb != bucket.VerbPut {
				return bucket.Action{}
			}
			if puts++; puts == 5 {
				cancel()
			}
			return bucket.Action{Before: errDown}
		})
		w.b = f
		w.open()
		_, err := w.a.RaiseCeiling(c, w.id, w.h, w.owner, w.h.Ceiling)
		require.ErrorIs(t, err, ErrInDoubt)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 5, puts)
	})
	t.Run("a refusal is no doubt", func(t *testing.T) {
		w := newWorld(t, 1)
		w.b = bucket.NewFault(w.mem, bucket.FailAt(1, bucket.NewError("put", "k", bucket.ErrDenied, nil)))
		w.open()
		_, err := w.a.Claim(ctx(t), w.id, "logs", nil, w.owner)
		require.ErrorIs(t, err, bucket.ErrDenied)
		require.False(t, errors.Is(err, ErrInDoubt))
	})
}

func TestVersionsNeverFall(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	first, _, err := bucket.GetAll(ctx(t), w.mem, bucket.Op{}, HeadKey(w.id), 1<<20)
	require.NoError(t, err)
	w.write(1)
	w.roll()
	put := func(b []byte) {
		_, err := w.mem.Put(ctx(t), bucket.Op{}, HeadKey(w.id), bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
	}
	put(first)
	_, err = w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrHeadRegressed)
	_, err = w.a.RaiseCeiling(ctx(t), w.id, w.h, w.owner, w.h.Ceiling)
	require.ErrorIs(t, err, ErrHeadRegressed)

	// Another head of the same version was never this one's successor.
	other := w.h.Clone()
	other.Attempt = "someone"
	put(other.Encode())
	_, err = w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrHeadRegressed)

	require.NoError(t, w.mem.Delete(ctx(t), bucket.Op{}, []string{HeadKey(w.id)}))
	_, err = w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrHeadRegressed)
	w.a.Forget(w.id)
	_, err = w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrNoHead)
}

func TestAnotherLifeOfTheClusterIsFenced(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	old := w.h
	oldArchive := w.a
	w.open(func(o *Options) { o.ClusterIncarnation = "life-2" })
	_, err := w.a.Claim(ctx(t), w.id, "logs", old, Owner{2, "run-2", 9})
	require.ErrorIs(t, err, ErrFenced)
	w.open(func(o *Options) { o.ClusterIncarnation, o.PreviousIncarnation = "life-2", "life-1" })
	_, err = w.a.Claim(ctx(t), w.id, "logs", old, Owner{2, "run-2", 9})
	require.NoError(t, err)
	_, err = oldArchive.RaiseCeiling(ctx(t), w.id, old, w.owner, old.Ceiling)
	require.ErrorIs(t, err, ErrFenced)
}

func TestCeiling(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	_, err := w.a.CommitRoll(ctx(t), w.id, w.h, w.owner, []Extent{VoidExtent(0, w.h.Ceiling+1, 1)}, nil)
	require.ErrorIs(t, err, ErrCeiling)
	ceiling := w.h.Ceiling
	h, err := w.a.SkipToCeiling(ctx(t), w.id, w.h, w.owner)
	require.NoError(t, err)
	require.Equal(t, ceiling, h.End)
	require.Equal(t, ceiling+minHeadroom, h.Ceiling)
	b, err := w.a.Read(ctx(t), h, 5, 100, coldOp)
	require.NoError(t, err)
	require.Equal(t, h.End, b.Next)
	require.Zero(t, b.Bytes)

	// A large roll raises it to ten times as much.
	h, err = w.a.RaiseCeiling(ctx(t), w.id, h, w.owner, h.End+5_000_000)
	require.NoError(t, err)
	h, err = w.a.CommitRoll(ctx(t), w.id, h, w.owner, []Extent{VoidExtent(h.End, h.End+2_000_000, 1)}, func(h *Head) { h.Producers = []byte("p") })
	require.NoError(t, err)
	require.Equal(t, h.End+20_000_000, h.Ceiling)
	require.Equal(t, []byte("p"), h.Producers)
	for _, bad := range [][]Extent{nil, {VoidExtent(h.End+1, h.End+2, 1)}, {VoidExtent(h.End-1, h.End+2, 1)}, {VoidExtent(h.End, h.End, 1)}} {
		_, err = w.a.CommitRoll(ctx(t), w.id, h, w.owner, bad, nil)
		require.ErrorIs(t, err, ErrNotContiguous)
	}
}

func TestSwapBackoffIsBounded(t *testing.T) {
	for d := time.Microsecond; d < time.Hour; d *= 7 {
		for range 100 {
			j := jitter(d)
			require.True(t, j >= d/2 && j <= d)
		}
	}
}

// TestDoubtIsSettledByTheNextCall: the context ends after a swap has happened and before anybody knows. The caller goes on with what
// it has.
func TestDoubtIsSettledByTheNextCall(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(3)
	old := w.h
	c, cancel := context.WithCancel(context.Background())
	f := bucket.NewFault(w.mem, bucket.Only(func(c bucket.Call) bool { return c.Verb == bucket.VerbPut && c.Op.Kind == bucket.KindHead }, bucket.FailAfterAt(1, errDown)))
	w.b = bucket.NewTrace(f, func(line string) {
		if strings.HasPrefix(line, "put head/") {
			cancel()
		}
	})
	w.open()
	_, err := w.tryRoll(c, old)
	require.ErrorIs(t, err, ErrInDoubt)

	src := w.pending(old)
	again, err := w.a.Upload(ctx(t), w.spec(old, src), src)
	require.NoError(t, err)
	h, err := w.a.CommitRoll(ctx(t), w.id, old, w.owner, []Extent{again}, nil)
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorIs(t, err, ErrNotContiguous)
	require.Equal(t, w.next, h.End)
	w.a.Discard(w.id, again.Key, old.Version+1)

	// Who keeps the old head is given the newest one without asking for it.
	h, err = w.a.Claim(ctx(t), w.id, "logs", old, w.owner)
	require.NoError(t, err)
	require.Equal(t, w.next, h.End)
	w.h = h
	w.write(2)
	w.h, err = w.tryRoll(ctx(t), w.h)
	require.NoError(t, err)
	w.checkSwept()
	w.checkAll(w.h)
}

// TestDiscardWaitsForAttemptsUnderWay: a put that timed out may arrive at the store later.
func TestDiscardWaitsForAttemptsUnderWay(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(3)
	src := w.pending(w.h)
	e, err := w.a.Upload(ctx(t), w.spec(w.h, src), src)
	require.NoError(t, err)
	c, cancel := context.WithCancel(context.Background())
	late := w.b
	w.b = bucket.NewFault(w.mem, func(call bucket.Call) bucket.Action {
		if call.Verb == bucket.VerbPut {
			cancel()
			return bucket.Action{Before: errDown}
		}
		return bucket.Action{}
	})
	w.a.opts.Heads = w.b
	_, err = w.a.CommitRoll(c, w.id, w.h, w.owner, []Extent{e}, nil)
	require.ErrorIs(t, err, ErrInDoubt)
	w.a.opts.Heads = late
	w.a.Discard(w.id, e.Key, 0) // whatever the caller says
	_, r, err := w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, []string{e.Key}, r.InFlight)
	require.Zero(t, r.Deleted)
	w.h, err = w.a.RaiseCeiling(ctx(t), w.id, w.h, w.owner, w.h.Ceiling)
	require.NoError(t, err)
	_, r, err = w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, 1, r.Deleted)
}
