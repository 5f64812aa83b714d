package kafka

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers come in size classes, four to each power of two, so that at most a quarter of one is
// waste. Larger ones than the last class are made for one request and left to the collector:
// a pool full of 100 MiB buffers helps nobody.
const (
	minClassBits = 9  // 512 B
	maxClassBits = 25 // 32 MiB: clients that buffer 16 MiB for many partitions send a little more than that at once
	classes      = (maxClassBits-minClassBits)*4 + 1
	largeClass   = (18 - minClassBits) * 4 // 256 KiB: from here on buffers are kept on the shelf
)

var (
	pools [largeClass]sync.Pool
	large shelf
)

// buffer is a request frame's memory, shared by those who retained it.
type buffer struct {
	b     []byte // the frame without its size field; set by the read loop
	store []byte // all of the memory
	class int    // -1 when not pooled
	refs  atomic.Int32
	lease lease
}

// classOf returns the smallest class that holds n bytes, -1 when none does.
func classOf(n int) int {
	if n <= 1<<minClassBits {
		return 0
	}
	if n > 1<<maxClassBits {
		return -1
	}
	top := bits.Len(uint(n-1)) - 1 // 1<<top <= n-1 < 1<<(top+1)
	quarter := (n - 1 - 1<<top) >> (top - 2)
	return (top-minClassBits)*4 + quarter + 1
}

// classSize returns the bytes of a buffer of the class.
func classSize(class int) int {
	base := 1 << (minClassBits + class/4)
	return base + base/4*(class%4)
}

// newBuffer returns a buffer with at least n bytes of memory and one reference.
func newBuffer(n int) *buffer {
	class := classOf(n)
	if class < 0 {
		b := &buffer{store: make([]byte, n), class: -1}
		b.refs.Store(1)
		return b
	}
	var b *buffer
	if class >= largeClass {
		b = large.get(class)
	} else {
		b, _ = pools[class].Get().(*buffer)
	}
	if b == nil {
		b = &buffer{store: make([]byte, classSize(class)), class: class}
	}
	b.refs.Store(1)
	return b
}

func (b *buffer) retain() { b.refs.Add(1) }

func (b *buffer) release() {
	n := b.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic("kafka: Request.Release without Retain")
	}
	b.lease.release()
	b.b = nil
	switch {
	case b.class < 0:
	case b.class >= largeClass:
		large.put(b)
	default:
		pools[b.class].Put(b)
	}
}
