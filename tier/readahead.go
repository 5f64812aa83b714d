package tier

import (
	"sync"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// readers remembers where reads have ended, to recognise those that go on there. It knows consumers by their place only.
type readers struct {
	mu sync.Mutex
	m  map[readerKey]reader
}

type readerKey struct {
	id   frame.PartitionID
	next int64
}

type reader struct {
	streak int   // reads that went on where the one before ended
	ahead  int64 // first offset of the first extent that was not asked for yet
}

const (
	maxReaders = 4096
	firstAhead = 4 << 20 // bytes ahead after the second read in sequence; doubled with each one
	maxStreak  = 16
)

// advance moves the reader that ended at offset to next, and returns what is known about it.
func (r *readers) advance(id frame.PartitionID, offset, next int64) reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := readerKey{id, offset}
	s, ok := r.m[k]
	if ok {
		delete(r.m, k)
		s.streak = min(s.streak+1, maxStreak)
	} else if len(r.m) >= maxReaders {
		for old := range r.m { // any one: which is chosen only costs speed
			delete(r.m, old)
			break
		}
	}
	r.m[readerKey{id, next}] = s
	return s
}

// asked notes that extents up to offset ahead were asked for.
func (r *readers) asked(id frame.PartitionID, next, ahead int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := readerKey{id, next}
	if s, ok := r.m[k]; ok {
		s.ahead = ahead
		r.m[k] = s
	}
}

// readAhead asks for the beginning of the next extents, and for their block tables, when a sequential reader comes near the end of
// one. Inside an object the cache reads ahead by itself. last is the last block that was read.
func (a *Archive) readAhead(op bucket.Op, h *Head, e *Extent, last *Block, offset, next int64) {
	if a.opts.Cache == nil || a.opts.ReadAhead <= 0 {
		return
	}
	s := a.readers.advance(h.ID, offset, next)
	if s.streak == 0 {
		return
	}
	want := min(int64(firstAhead)<<(s.streak-1), a.opts.ReadAhead) - (e.batchesEnd() - last.Off - last.Stored)
	if want <= 0 || len(h.Extents) == 0 || e.End < h.Extents[0].Start {
		return // or in a page, which the reader loads soon enough
	}
	ahead := max(s.ahead, e.End)
	for i := searchExtents(h.Extents, e.End); i < len(h.Extents) && want > 0; i++ {
		n := &h.Extents[i]
		if n.Kind != KindVoid && n.Start >= ahead {
			a.prefetchView(op, h, *n) // which reads the whole part of a WAL object
			if n.Kind == KindData {
				a.opts.Cache.Prefetch(op, n.Key, n.Size, 0, min(want, n.FooterOff))
			}
			ahead = n.End
		}
		want -= n.stored()
	}
	if ahead > s.ahead {
		a.readers.asked(h.ID, next, ahead)
	}
}
