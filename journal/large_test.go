package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step that is larger than a batch may be is cut, and answered when all of it is durable.
func TestLargeStep(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	before := 0
	r.log.set(func() { before = len(r.log.batches); r.log.hold = true })
	var records []Record
	for i := range 5 {
		key := make([]byte, 8<<20)
		copy(key, fmt.Sprint("key-", i))
		records = append(records, Record{Key: key, Value: []byte("5")})
	}
	done := make(chan error, 1)
	require.NoError(t, r.j.Do(0, func(m *mach, _ time.Time) Step {
		for _, rec := range records {
			m.Apply(rec)
		}
		return Step{Records: records, Done: func(err error) { done <- err }}
	}))
	r.log.set(func() { require.Len(t, r.log.batches, before+5) })
	select {
	case <-done:
		t.Fatal("answered before it was durable")
	default:
	}
	r.log.set(func() { r.log.hold = false })
	require.NoError(t, <-done)
	want := r.state()
	require.Len(t, want, 6)
	r.reopen(1 << 20)
	require.Equal(t, want, r.state())
}
