package s3_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/buckettest"
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
