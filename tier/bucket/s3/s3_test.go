package s3_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/buckettest"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var prefixes atomic.Int64

// fresh returns a prefix that nothing was written below.
func fresh() string { return fmt.Sprintf("test/%d", prefixes.Add(1)) }

func TestConformance(t *testing.T) {
	server := s3test.Start(t)
	buckettest.Conformance(t, func() bucket.Bucket { return server.Open(t, fresh()) })
}

func TestProbe(t *testing.T) {
	server := s3test.Start(t)
	b := server.Open(t, fresh())
	require.NoError(t, bucket.Probe(t.Context(), b))
	page, err := b.List(t.Context(), bucket.Op{}, "", "", 0)
	require.NoError(t, err)
	require.Empty(t, page.Items)
}

// TestPrefixes: a bucket sees what lies below its prefix, and nothing else.
func TestPrefixes(t *testing.T) {
	server := s3test.Start(t)
	base := fresh()
	outer, inner, other := server.Open(t, base), server.Open(t, base+"/a"), server.Open(t, base+"/ab")
	put(t, outer, "a/x", "1")
	put(t, outer, "ab/y", "2")
	put(t, outer, "z", "3")
	for b, want := range map[bucket.Bucket][]string{outer: {"a/x", "ab/y", "z"}, inner: {"x"}, other: {"y"}} {
		page, err := b.List(t.Context(), headOp, "", "", 0)
		require.NoError(t, err)
		var got []string
		for _, i := range page.Items {
			got = append(got, i.Key)
		}
		require.Equal(t, want, got)
	}
	got, info, err := bucket.GetAll(t.Context(), inner, headOp, "x", 10)
	require.NoError(t, err)
	require.Equal(t, "1", string(got))
	require.Equal(t, "x", info.Key)
	require.NoError(t, inner.Delete(t.Context(), headOp, []string{"x", "y", "z"}))
	page, err := outer.List(t.Context(), headOp, "", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 2)
	u := inner.(*s3.Store)
	require.NoError(t, other.(*s3.Store).StartUpload(t.Context(), "up"))
	ups, err := u.Uploads(t.Context(), headOp, "", true)
	require.NoError(t, err)
	require.Empty(t, ups, "the uploads of others are theirs")
	ups, err = other.Uploads(t.Context(), headOp, "", true)
	require.NoError(t, err)
	require.Len(t, ups, 1)
}
