package cache

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"
)

// minSlab is the smallest slab; others are powers of two.
const minSlab = 16 << 10

// hugePage is the size from which slabs ask for huge pages: one fault instead of 512, and as many fewer entries in the TLB.
const hugePage = 2 << 20

// slabSize is the size of the slab that n bytes get.
func slabSize(n int) int64 {
	if n <= minSlab {
		return minSlab
	}
	return 1 << bits.Len64(uint64(n-1))
}

// memory hands out slabs. Tests replace it to catch whoever uses one that was given back.
type memory interface {
	get(n int) ([]byte, error) // n bytes with a capacity of slabSize(n), of any content
	put(b []byte)              // b as it came from get
	close() error              // frees what was put; later puts free at once
}

// slabPool maps anonymous memory, which the garbage collector neither scans nor counts, and keeps what comes back for reuse, as
// long as all of it together stays within the budget.
type slabPool struct {
	budget int64

	mu     sync.Mutex
	mapped int64
	free   map[int64][][]byte
	closed bool
	err    error // of munmap
}

func newSlabPool(budget int64) *slabPool {
	return &slabPool{budget: budget, free: map[int64][][]byte{}}
}

func (p *slabPool) get(n int) ([]byte, error) {
	size := slabSize(n)
	p.mu.Lock()
	if l := p.free[size]; len(l) > 0 {
		b := l[len(l)-1]
		p.free[size] = l[:len(l)-1]
		p.mu.Unlock()
		return b[:n], nil
	}
	trash := p.trim(p.budget - size)
	p.mapped += size
	p.mu.Unlock()
	p.unmap(trash)
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		p.mu.Lock()
		p.mapped -= size
		p.mu.Unlock()
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	if size >= hugePage {
		// Advice that the kernel need not take: it may not be built with it.
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
	return b[:n], nil
}

func (p *slabPool) put(b []byte) {
	b = b[:cap(b)]
	size := int64(len(b))
	p.mu.Lock()
	if !p.closed && p.mapped <= p.budget {
		p.free[size] = append(p.free[size], b)
		p.mu.Unlock()
		return
	}
	p.mapped -= size
	p.mu.Unlock()
	p.unmap([][]byte{b})
}

func (p *slabPool) close() error {
	p.mu.Lock()
	p.closed = true
	trash := p.trim(-1)
	p.mu.Unlock()
	p.unmap(trash)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// trim takes slabs of other sizes out of the pool until at most limit bytes are mapped. The caller unmaps them.
func (p *slabPool) trim(limit int64) [][]byte {
	var trash [][]byte
	for size, l := range p.free {
		for len(l) > 0 && p.mapped > limit {
			trash = append(trash, l[len(l)-1])
			l[len(l)-1] = nil
			l = l[:len(l)-1]
			p.mapped -= size
		}
		p.free[size] = l
	}
	return trash
}

func (p *slabPool) unmap(trash [][]byte) {
	for _, b := range trash {
		if err := unix.Munmap(b); err != nil {
			p.mu.Lock()
			p.err = errors.Join(p.err, fmt.Errorf("unmap %d bytes: %w", len(b), err))
			p.mu.Unlock()
		}
	}
}
