package bucket_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// liar is a store that lacks something.
type liar struct {
	bucket.Bucket
	lie string
}

func (l liar) Put(ctx context.Context, op bucket.Op, key string, body bucket.Body, cond bucket.Condition) (bucket.Info, error) {
	ignore := l.lie == "conditions" || l.lie == "create" && cond.IfNoneMatch || l.lie == "replace" && cond.IfMatch != ""
	if ignore {
		cond = bucket.Condition{}
	}
	info, err := l.Bucket.Put(ctx, op, key, body, cond)
	switch {
	case l.lie == "missing" && errors.Is(err, bucket.ErrNotFound):
		return l.Bucket.Put(ctx, op, key, body, bucket.Condition{})
	case l.lie == "etag":
		info.ETag = "made-up"
	case l.lie == "race" && errors.Is(err, bucket.ErrPrecondition) && strings.Contains(key, "race"):
		return info, nil
	}
	return info, err
}

func (l liar) List(ctx context.Context, op bucket.Op, prefix, after string, max int) (bucket.Page, error) {
	if l.lie == "list" {
		return bucket.Page{}, nil
	}
	return l.Bucket.List(ctx, op, prefix, after, max)
}

func (l liar) Delete(ctx context.Context, op bucket.Op, keys []string) error {
	if l.lie == "delete" {
		return nil
	}
	return l.Bucket.Delete(ctx, op, keys)
}

func TestProbe(t *testing.T) {
	for _, b := range []bucket.Bucket{bucket.NewMemory(), openDir(t)} {
		require.NoError(t, bucket.Probe(t.Context(), b))
		page, err := b.List(t.Context(), bucket.Op{}, "", "", 0)
		require.NoError(t, err)
		require.Empty(t, page.Items)
	}
}

func TestProbeFindsWhatIsMissing(t *testing.T) {
	for lie, property := range map[string]string{
		"conditions": bucket.PropertyCreateOnce,
		"create":     bucket.PropertyCreateOnce,
		"replace":    bucket.PropertyReplaceWrong,
		"etag":       bucket.PropertyReplaceRight,
		"missing":    bucket.PropertyReplaceMissing,
		"race":       bucket.PropertyOneWinner,
		"list":       bucket.PropertyListAfterWrite,
		"delete":     bucket.PropertyDelete,
	} {
		t.Run(lie, func(t *testing.T) {
			err := bucket.Probe(t.Context(), liar{bucket.NewMemory(), lie})
			var missing *bucket.ProbeError
			require.ErrorAs(t, err, &missing)
			require.ErrorIs(t, err, bucket.ErrProbe)
			require.Equal(t, property, missing.Property)
			t.Log(err)
		})
	}
}

// TestProbeCleansUp whatever fails on the way, and reports a store that cannot be asked as such.
func TestProbeCleansUp(t *testing.T) {
	for k := 1; ; k++ {
		mem := bucket.NewMemory()
		f := bucket.NewFault(mem, bucket.FailAt(k, bucket.ErrDenied))
		err := bucket.Probe(t.Context(), f)
		if f.Calls() < k {
			require.NoError(t, err)
			require.Greater(t, k, 25)
			return
		}
		require.ErrorIs(t, err, bucket.ErrDenied, "call %d", k)
		require.NotErrorIs(t, err, bucket.ErrProbe)
		if k < f.Calls() { // the last call is the removal
			page, err := mem.List(t.Context(), bucket.Op{}, "", "", 0)
			require.NoError(t, err)
			require.Empty(t, page.Items, "call %d", k)
		}
	}
}
