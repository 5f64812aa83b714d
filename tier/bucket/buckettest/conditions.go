package buckettest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

var create = bucket.Condition{IfNoneMatch: true}

func createOnly(e *env) {
	info, err := e.putIf("c/x", "one", create)
	require.NoError(e, err)
	require.Equal(e, "one", e.all("c/x"))
	e.refused("c/x", []byte("two"), create)
	e.refused("c/x", []byte("one"), create) // the same bytes too
	require.Equal(e, "one", e.all("c/x"))
	st, err := e.b.Stat(e.ctx, op, "c/x")
	require.NoError(e, err)
	require.Equal(e, info.ETag, st.ETag)
	require.NoError(e, e.b.Delete(e.ctx, op, []string{"c/x"}))
	_, err = e.putIf("c/x", "three", create)
	require.NoError(e, err)
	require.Equal(e, "three", e.all("c/x"))
	_, err = e.putIf("c/x", "four", bucket.Condition{IfNoneMatch: true, IfMatch: "e"})
	require.ErrorIs(e, err, bucket.ErrRefused)
}

func replace(e *env) {
	one := e.put("r/x", "one")
	two, err := e.putIf("r/x", "two", bucket.Condition{IfMatch: one.ETag})
	require.NoError(e, err)
	require.NotEqual(e, one.ETag, two.ETag)
	err = e.refused("r/x", []byte("three"), bucket.Condition{IfMatch: one.ETag})
	require.NotErrorIs(e, err, bucket.ErrNotFound)
	require.Equal(e, "two", e.all("r/x"))
	_, got, err := e.b.Get(e.ctx, op, "r/x", 0, 1, make([]byte, 1))
	require.NoError(e, err)
	page, err := e.b.List(e.ctx, op, "r/", "", 0)
	require.NoError(e, err)
	require.Equal(e, got.ETag, page.Items[0].ETag, "the ETag of a list serves as well")
	_, err = e.putIf("r/x", "four", bucket.Condition{IfMatch: got.ETag})
	require.NoError(e, err)
	require.Equal(e, "four", e.all("r/x"))
}

func replaceMissing(e *env) {
	one := e.put("r/x", "one")
	require.NoError(e, e.b.Delete(e.ctx, op, []string{"r/x"}))
	for _, key := range []string{"r/x", "never/was"} {
		e.refused(key, []byte("two"), bucket.Condition{IfMatch: one.ETag})
		_, err := e.b.Stat(e.ctx, op, key)
		require.ErrorIs(e, err, bucket.ErrNotFound)
	}
}

// largeConditional is larger than what clients and servers like to cut into parts, dropping the condition.
func largeConditional(e *env) {
	one, two := pattern(1, 20<<20), pattern(2, 20<<20)
	info, err := e.b.Put(e.ctx, op, "l/x", bucket.BytesBody(one), create)
	require.NoError(e, err)
	for _, cond := range []bucket.Condition{create, {IfMatch: "0123456789abcdef"}} {
		e.refused("l/x", two, cond)
	}
	st, err := e.b.Stat(e.ctx, op, "l/x")
	require.NoError(e, err)
	require.Equal(e, info.ETag, st.ETag)
	_, err = e.b.Put(e.ctx, op, "l/x", bucket.BytesBody(two), bucket.Condition{IfMatch: info.ETag})
	require.NoError(e, err)
	require.True(e, string(two) == e.all("l/x"))
}

// race lets n writers put different bytes under key with the same condition and returns what won. A writer that was not told
// that it won may still have won, so the winner is who is found in the bucket.
func race(e *env, key string, round, n int, cond bucket.Condition) string {
	var wg sync.WaitGroup
	var told, lost atomic.Int32
	var winner atomic.Value
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			// Unique bytes: the ETag of a store may be a hash, so what was there before would not look like a change.
			content := fmt.Sprintf("%s by writer %d in round %d", key, i, round)
			_, err := e.putIf(key, content, cond)
			switch {
			case err == nil:
				told.Add(1)
				winner.Store(content)
			case errors.Is(err, bucket.ErrPrecondition) || errors.Is(err, bucket.ErrUnavailable):
				lost.Add(1)
			default:
				e.Errorf("writer %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
	require.LessOrEqual(e, told.Load(), int32(1), "writers that were told that they won")
	got := e.all(key)
	if w := winner.Load(); w != nil {
		require.Equal(e, w, got)
	}
	return got
}

func racingCreates(e *env) {
	for round := range 8 {
		race(e, fmt.Sprintf("race/%d", round), round, 16, create)
	}
}

func racingReplaces(e *env) {
	e.put("race/x", "start")
	for round := range 8 {
		st, err := e.b.Stat(e.ctx, op, "race/x")
		require.NoError(e, err)
		require.NotEqual(e, "start", race(e, "race/x", round, 16, bucket.Condition{IfMatch: st.ETag}))
	}
}

// counterByCAS: 8 writers count to 10 each; no increment is lost, none counts twice. The content names its writer and attempt, so
// that a put whose answer was lost is recognised.
func counterByCAS(e *env) {
	const writers, each = 8, 10
	e.put("cas/n", "0 nobody")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := increment(e, fmt.Sprintf("%d.%d", w, i)); err != nil {
					e.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var n int
	_, err := fmt.Sscan(e.all("cas/n"), &n)
	require.NoError(e, err)
	require.Equal(e, writers*each, n)
}

func increment(e *env, attempt string) error {
	for {
		old, info, err := bucket.GetAll(e.ctx, e.b, op, "cas/n", 100)
		if err != nil {
			return err
		}
		var n int
		var by string
		if _, err := fmt.Sscan(string(old), &n, &by); err != nil {
			return err
		}
		if by == attempt {
			return nil // the put before had won without being told
		}
		_, err = e.putIf("cas/n", strconv.Itoa(n+1)+" "+attempt, bucket.Condition{IfMatch: info.ETag})
		if err == nil {
			return nil
		}
		if !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrUnavailable) {
			return err
		}
	}
}

// wholeVersions: while a key is replaced, every reader sees one version, whole, with the ETag that belongs to it.
func wholeVersions(e *env) {
	const size = 300_000
	e.put("w/x", string(pattern(0, size)))
	var wg sync.WaitGroup
	var done atomic.Bool
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				got, info, err := bucket.GetAll(e.ctx, e.b, op, "w/x", size)
				if err != nil {
					e.Errorf("get: %v", err)
					return
				}
				if len(got) != size || info.Size != size || !isPattern(got) {
					e.Errorf("read a mixture of versions (%d bytes)", len(got))
					return
				}
			}
		})
	}
	for v := range uint32(30) {
		if _, err := e.b.Put(e.ctx, op, "w/x", bucket.BytesBody(pattern(v%8, size)), bucket.Condition{}); err != nil {
			e.Errorf("put: %v", err)
		}
	}
	done.Store(true)
	wg.Wait()
}

func isPattern(b []byte) bool {
	for seed := range uint32(8) {
		if string(pattern(seed, 16)) == string(b[:16]) {
			return string(pattern(seed, len(b))) == string(b)
		}
	}
	return false
}
