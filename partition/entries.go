package partition

import (
	"fmt"
	"sort"
	"sync"

	"github.com/tierbroker/tierbroker/index"
)

// entryBuf is a reusable list of entries for one read.
type entryBuf struct{ list []index.Entry }

var entryBufs = sync.Pool{New: func() any { return &entryBuf{list: make([]index.Entry, 0, 64)} }}

func (b *entryBuf) free() {
	if cap(b.list) <= 4096 {
		b.list = b.list[:0]
		entryBufs.Put(b)
	}
}

// budget decides when a run of entries is long enough.
type budget struct {
	left  int
	first bool // the first entry is taken whatever its size
	limit int64
	full  bool // an entry below limit was too large
}

func (g *budget) take(e *index.Entry) bool {
	if e.Base >= g.limit {
		return false
	}
	if int(e.Length) > g.left && !g.first {
		g.full = true
		return false
	}
	g.left -= int(e.Length)
	g.first = false
	return true
}

// entries appends to buf the local entries from the one that holds offset (or the next one) on, as the budget allows.
// The index answers for what it has and the memory tail for the rest; a run that moves from tail to index meanwhile
// is found there.
func (p *Partition) entries(buf *entryBuf, offset int64, g *budget) error {
	for next := offset; ; {
		before := len(buf.list)
		tailBase, full := p.tailEntries(buf, next, g)
		if full {
			return nil
		}
		if n := len(buf.list); n > before {
			next = buf.list[n-1].Last + 1
			continue
		}
		if tailBase >= 0 && next >= tailBase {
			return nil // the tail has nothing behind next
		}
		stop := false
		err := p.set.index.Scan(p.id, next, func(e index.Entry) bool {
			if tailBase >= 0 && e.Base >= tailBase {
				return false
			}
			if !g.take(&e) {
				stop = true
				return false
			}
			buf.list = append(buf.list, e)
			return true
		})
		if err != nil {
			return err
		}
		if stop || len(buf.list) == before {
			if stop || tailBase < 0 {
				return nil
			}
			next = tailBase // nothing local below the tail
			continue
		}
		next = buf.list[len(buf.list)-1].Last + 1
		if tailBase < 0 {
			return nil
		}
	}
}

// tailEntries appends what the memory tail has from offset on, if it reaches back that far. It returns the tail's
// first offset, -1 when it is empty, and whether the budget is used up.
func (p *Partition) tailEntries(buf *entryBuf, offset int64, g *budget) (base int64, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tail) == 0 {
		return -1, false
	}
	if offset < p.tail[0].Base {
		return p.tail[0].Base, false
	}
	i := sort.Search(len(p.tail), func(i int) bool { return p.tail[i].Last >= offset })
	for ; i < len(p.tail); i++ {
		if !g.take(&p.tail[i]) {
			return p.tail[0].Base, true
		}
		buf.list = append(buf.list, p.tail[i])
	}
	return p.tail[0].Base, true
}

// scanChunk is how many bytes of batches scanLocal looks at per step: it bounds its memory.
const scanChunk = 64 << 20

// scanLocal calls fn for the local entries from the one that holds offset on, as long as they begin below limit and
// fn returns true.
func (p *Partition) scanLocal(offset, limit int64, fn func(*index.Entry) bool) error {
	buf := entryBufs.Get().(*entryBuf)
	defer buf.free()
	for {
		buf.list = buf.list[:0]
		if err := p.entries(buf, offset, &budget{left: scanChunk, first: true, limit: limit}); err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
		for i := range buf.list {
			if !fn(&buf.list[i]) {
				return nil
			}
		}
		if len(buf.list) == 0 {
			return nil
		}
		offset = buf.list[len(buf.list)-1].Last + 1
	}
}
