package bucket_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// TestTrace shows what a golden of a scenario looks like.
func TestTrace(t *testing.T) {
	var lines []string
	b := bucket.NewTrace(bucket.NewMemory(), func(s string) { lines = append(lines, s) })
	ctx := t.Context()
	head := bucket.Op{Class: bucket.ClassHead, Kind: bucket.KindHead}
	body := bucket.BytesBody([]byte("0123456789"))
	info, err := b.Put(ctx, head, "head/a", body, bucket.Condition{IfNoneMatch: true})
	require.NoError(t, err)
	b.Put(ctx, head, "head/a", body, bucket.Condition{IfNoneMatch: true})
	b.Put(ctx, head, "head/a", body, bucket.Condition{IfMatch: info.ETag})
	b.Put(ctx, head, "head/b", body, bucket.Condition{})
	cold := bucket.Op{Class: bucket.ClassCold, Kind: bucket.KindData}
	b.Get(ctx, cold, "head/a", 2, 5, make([]byte, 5))
	b.Get(ctx, cold, "head/a", 8, 5, make([]byte, 5))
	b.Get(ctx, cold, "nothing", 0, 5, make([]byte, 5))
	bucket.GetAll(ctx, b, head, "head/a", 100)
	bucket.GetAll(ctx, b, head, "head/a", 5)
	b.Stat(ctx, head, "head/a")
	b.List(ctx, bucket.Op{Class: bucket.ClassSweep}, "head/", "", 1)
	b.List(ctx, bucket.Op{Class: bucket.ClassSweep}, "head/", "head/a", 1)
	b.Delete(ctx, bucket.Op{Class: bucket.ClassSweep}, []string{"head/a", "head/b"})
	b.Delete(ctx, bucket.Op{}, []string{"a b"})
	b.Uploads(ctx, bucket.Op{Class: bucket.ClassSweep}, "data/", true)
	require.Equal(t, strings.TrimSpace(`
put head/a 10 bytes, create [head head]: ok
put head/a 10 bytes, create [head head]: precondition failed
put head/a 10 bytes, replace [head head]: ok
put head/b 10 bytes [head head]: ok
get head/a 2+5 [cold data]: ok
get head/a 8+5 [cold data]: outside
get nothing 0+5 [cold data]: not found
get head/a [head head]: 10 bytes
get head/a [head head]: too large
stat head/a [head head]: 10 bytes
list head/ [sweep]: 1 keys, more
list head/ after head/a [sweep]: 1 keys
delete head/a head/b [sweep]: ok
delete a b []: 1 keys failed
uploads data/ abort [sweep]: 0 uploads`), strings.Join(lines, "\n"))
}

func TestMeter(t *testing.T) {
	var seen []string
	b := bucket.NewMeter(bucket.NewMemory(), func(op bucket.Op, verb string, n int64, _ time.Duration, err error) {
		seen = append(seen, fmt.Sprintf("%s %s %s %d %v", op.Class, op.Topic, verb, n, err != nil))
	})
	op := bucket.Op{Class: bucket.ClassRoll, Topic: "logs", Kind: bucket.KindData}
	_, err := b.Put(t.Context(), op, "a", bucket.BytesBody(make([]byte, 77)), bucket.Condition{})
	require.NoError(t, err)
	_, _, err = b.Get(t.Context(), op, "a", 7, 70, make([]byte, 70))
	require.NoError(t, err)
	_, _, err = bucket.GetAll(t.Context(), b, op, "a", 100)
	require.NoError(t, err)
	_, _, err = b.Get(t.Context(), op, "a", 7, 71, make([]byte, 71))
	require.Error(t, err)
	require.Equal(t, []string{"roll logs put 77 false", "roll logs get 70 false", "roll logs get 77 false", "roll logs get 0 true"}, seen)
}

func TestFault(t *testing.T) {
	mem := bucket.NewMemory()
	f := bucket.NewFault(mem, bucket.FailAt(2, bucket.ErrUnavailable))
	op := bucket.Op{}
	put := func(key string) error {
		_, err := f.Put(t.Context(), op, key, bucket.BytesBody([]byte("content")), bucket.Condition{})
		return err
	}
	there := func(key string) bool {
		_, err := mem.Stat(t.Context(), op, key)
		return err == nil
	}
	require.NoError(t, put("1"))
	require.ErrorIs(t, put("2"), bucket.ErrUnavailable)
	require.False(t, there("2"))
	require.NoError(t, put("3"))

	f.Revive(bucket.FailAfterAt(1, bucket.ErrPrecondition))
	require.ErrorIs(t, put("4"), bucket.ErrPrecondition)
	require.True(t, there("4"))

	for _, after := range []bool{false, true} {
		f.Revive(bucket.Only(bucket.Call.Writes, bucket.CrashAt(2, after)))
		key := fmt.Sprint("crash-", after)
		require.NoError(t, put("5"))
		_, err := f.Stat(t.Context(), op, "5")
		require.NoError(t, err)
		require.False(t, f.Crashed())
		require.ErrorIs(t, put(key), bucket.ErrCrashed)
		require.True(t, f.Crashed())
		require.Equal(t, after, there(key))
		require.ErrorIs(t, put("6"), bucket.ErrCrashed)
		require.ErrorIs(t, f.Delete(t.Context(), op, []string{"5"}), bucket.ErrCrashed)
		require.True(t, there("5"))
		require.False(t, there("6"))
		require.Equal(t, 3, f.Calls())
	}

	f.Revive(func(bucket.Call) bucket.Action { return bucket.Action{Flip: true, FlipAt: 8} })
	require.ErrorIs(t, put("7"), bucket.ErrCorrupt)
	got, _, err := bucket.GetAll(t.Context(), f, op, "5", 10)
	require.NoError(t, err)
	require.Equal(t, "cnntent", string(got))
	f.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Cut: true} })
	_, _, err = f.Get(t.Context(), op, "5", 0, 7, make([]byte, 7))
	require.ErrorIs(t, err, bucket.ErrUnavailable)

	f.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Partial: true} })
	var failed *bucket.DeleteError
	require.ErrorAs(t, f.Delete(t.Context(), op, []string{"1", "3", "4"}), &failed)
	require.Len(t, failed.Failed, 1)
	require.False(t, there("1"))
	require.False(t, there("3"))
	require.True(t, there("4"))

	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	f.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: hold, Latency: time.Nanosecond} })
	done := make(chan error)
	go func() {
		_, err := f.Stat(ctx, op, "4")
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	close(hold)
	_, err = f.Stat(t.Context(), op, "4")
	require.NoError(t, err)
}
