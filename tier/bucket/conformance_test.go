package bucket_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/buckettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	buckettest.Conformance(t, func() bucket.Bucket { return bucket.NewMemory() })
}

// plain hides everything but the six methods, so that GetAll takes its slow way.
type plain struct{ bucket.Bucket }

func TestPlain(t *testing.T) {
	buckettest.Conformance(t, func() bucket.Bucket { return plain{bucket.NewMemory()} })
}

func openDir(t *testing.T) *bucket.Dir {
	d, err := bucket.OpenDir(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestDir(t *testing.T) {
	buckettest.Conformance(t, func() bucket.Bucket { return openDir(t) })
}

func TestFaultPassesThrough(t *testing.T) {
	buckettest.Conformance(t, func() bucket.Bucket { return bucket.NewFault(bucket.NewMemory(), nil) })
}

func TestObserversPassThrough(t *testing.T) {
	buckettest.Conformance(t, func() bucket.Bucket {
		meter := bucket.NewMeter(bucket.NewMemory(), func(bucket.Op, string, int64, time.Duration, error) {})
		return bucket.NewTrace(meter, func(string) {})
	})
}
