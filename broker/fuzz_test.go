package broker

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/kafka"
)

// fuzzOne sends an arbitrary body and returns the bytes allocated for it.
func fuzzOne(w *world, key, version int16, body []byte) uint64 {
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := w.b.Handle(ctx, &kafka.Request{Key: key, Version: version, Body: body, Received: time.Now()})
	if p != nil {
		r := p.Wait(ctx)
		if r.Release != nil {
			r.Release()
		}
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Most that a request may allocate: so many times its body, beside what any request takes (answers list every topic
// and setting).
const (
	allocPerByte = 150
	allocFree    = 4 << 20
)

func FuzzHandle(f *testing.F) {
	w := newWorld(f)
	topic := w.topic("t", 2)
	w.part(topic, 0).write(records(1, "a", "b"))
	for _, a := range apis {
		for v := a.min; v <= a.max; v++ {
			r := kmsg.RequestForKey(a.key)
			r.SetVersion(v)
			f.Add(a.key, v, r.AppendTo(nil))
		}
	}
	for _, r := range []kmsg.Request{
		produceReq(topic, 0, -1, records(1, "x")), fetchReq(topic, at{0, 0}, at{1, 0}), sessionReq(topic, 0, 0, at{0, 0}), listReq("t", query(0, 1), query(1, -3)),
		metadataReq("t", "u"), createReq(newTopic("n", 1, 1, "retention.ms", "1"), assignedTopic("m", map[int32][]int32{0: {1}})),
	} {
		for _, v := range []int16{4, 7, 9, 12, 13} {
			if a := w.b.table[r.Key()]; v >= a.min && v <= a.max {
				r.SetVersion(v)
				f.Add(r.Key(), v, r.AppendTo(nil))
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if n := fuzzOne(w, key, version, body); n > uint64(len(body))*allocPerByte+allocFree {
			t.Fatalf("API %d version %d: %d bytes allocated for a body of %d", key, version, n, len(body))
		}
	})
}

// TestHostileCounts sends arrays that announce more than they hold, and bodies full of the smallest elements.
func TestHostileCounts(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	for _, a := range apis {
		for v := a.min; v <= a.max; v++ {
			for _, fill := range []byte{0, 1, 2, 0x7f, 0xff} {
				// A count, or a length, at every place of the first bytes.
				for at := range 24 {
					body := make([]byte, 512)
					for i := range body {
						body[i] = fill
					}
					binary.BigEndian.PutUint32(body[at:], 0x7fffffff)
					require.Less(t, fuzzOne(w, a.key, v, body), uint64(allocFree+512*allocPerByte), "%s version %d", a.name, v)
				}
			}
		}
	}
}

// TestSmallestElements: the largest number of elements that fit into a body must not take much more than the body.
func TestSmallestElements(t *testing.T) {
	w := newWorld(t)
	const size = 1<<18 - 1
	for _, a := range apis {
		for v := a.min; v <= a.max; v++ {
			r := kmsg.RequestForKey(a.key)
			r.SetVersion(v)
			flex := r.IsFlexible()
			for skip := range 40 {
				body := make([]byte, size)
				n := uint32(size - skip - 8)
				for n > 0 {
					at := body[skip:]
					if flex {
						binary.PutUvarint(at, uint64(n))
					} else {
						binary.BigEndian.PutUint32(at, n)
					}
					used := fuzzOne(w, a.key, v, body)
					require.Less(t, used, uint64(allocFree+size*allocPerByte), "%s version %d, %d elements at %d", a.name, v, n, skip)
					n /= 4
				}
			}
		}
	}
}
