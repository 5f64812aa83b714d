package buckettest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Conformance runs the suite. open returns an empty bucket; it is called once for each test.
func Conformance(t *testing.T, open func() bucket.Bucket) {
	tests := []struct {
		name string
		run  func(*env)
	}{
		{"PutGet", putGet},
		{"Sizes", sizes},
		{"Ranges", ranges},
		{"RangeOutside", rangeOutside},
		{"Missing", missing},
		{"Overwrite", overwrite},
		{"GetAll", getAll},
		{"Keys", keys},
		{"BadChecksum", badChecksum},
		{"BadSize", badSize},
		{"BodyFails", bodyFails},
		{"CreateOnly", createOnly},
		{"Replace", replace},
		{"ReplaceMissing", replaceMissing},
		{"LargeConditional", largeConditional},
		{"RacingCreates", racingCreates},
		{"RacingReplaces", racingReplaces},
		{"CounterByCAS", counterByCAS},
		{"ReadersSeeWholeVersions", wholeVersions},
		{"ListOrder", listOrder},
		{"ListPages", listPages},
		{"ListPrefixes", listPrefixes},
		{"ListManyPages", listManyPages},
		{"Delete", deleteKeys},
		{"DeleteMany", deleteMany},
		{"PutsAndDeletesInOneFolder", putsAndDeletes},
		{"Uploads", uploads},
		{"Canceled", canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			t.Cleanup(cancel)
			tt.run(&env{T: t, ctx: ctx, b: open()})
		})
	}
}

// env is what a test of the suite works with.
type env struct {
	*testing.T
	ctx context.Context
	b   bucket.Bucket
}

var op = bucket.Op{Class: bucket.ClassTool, Topic: "conformance", Kind: bucket.KindData}

func (e *env) put(key, content string) bucket.Info {
	e.Helper()
	info, err := e.b.Put(e.ctx, op, key, bucket.BytesBody([]byte(content)), bucket.Condition{})
	require.NoError(e, err)
	require.Equal(e, key, info.Key)
	require.EqualValues(e, len(content), info.Size)
	require.NotEmpty(e, info.ETag)
	return info
}

func (e *env) putIf(key, content string, cond bucket.Condition) (bucket.Info, error) {
	return e.b.Put(e.ctx, op, key, bucket.BytesBody([]byte(content)), cond)
}

// refused requires that a put with this condition is refused. A server may break the connection on which the body still comes
// after it has refused, so that the answer is lost; then the put is repeated.
func (e *env) refused(key string, content []byte, cond bucket.Condition) error {
	e.Helper()
	var err error
	for range 20 {
		_, err = e.b.Put(e.ctx, op, key, bucket.BytesBody(content), cond)
		if !errors.Is(err, bucket.ErrUnavailable) {
			break
		}
	}
	if !errors.Is(err, bucket.ErrUnavailable) || len(content) < 1<<20 {
		require.ErrorIs(e, err, bucket.ErrPrecondition)
	}
	return err
}

func (e *env) all(key string) string {
	e.Helper()
	got, info, err := bucket.GetAll(e.ctx, e.b, op, key, 64<<20)
	require.NoError(e, err)
	require.EqualValues(e, len(got), info.Size)
	return string(got)
}

func (e *env) list(prefix string) []string {
	e.Helper()
	var keys []string
	after := ""
	for {
		p, err := e.b.List(e.ctx, op, prefix, after, 0)
		require.NoError(e, err)
		for _, i := range p.Items {
			keys = append(keys, i.Key)
		}
		if p.Next == "" {
			return keys
		}
		after = p.Next
	}
}
