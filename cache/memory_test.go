package cache

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// guard is a memory that never reuses a slab: what is given back becomes inaccessible, so that whoever still reads it or
// writes it crashes the test. It also knows the most that was out at a time.
type guard struct {
	mu        sync.Mutex
	out, most int64
	dead      [][]byte
	fail      error // of the next get
}

func (g *guard) get(n int) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fail; err != nil {
		g.fail = nil
		return nil, err
	}
	size := slabSize(n)
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	g.out += size
	g.most = max(g.most, g.out)
	return b[:n], nil
}

func (g *guard) put(b []byte) {
	b = b[:cap(b)]
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		panic(err)
	}
	if err := unix.Mprotect(b, unix.PROT_NONE); err != nil {
		panic(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out -= int64(len(b))
	g.dead = append(g.dead, b)
}

// close leaves dead slabs mapped: a late reader must still crash. unmap is the end of them.
func (g *guard) close() error { return nil }

func (g *guard) unmap() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out != 0 {
		return fmt.Errorf("%d bytes were not put back", g.out)
	}
	for _, b := range g.dead {
		if err := unix.Munmap(b); err != nil {
			return err
		}
	}
	g.dead = nil
	return nil
}

func (g *guard) peak() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}
