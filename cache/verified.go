package cache

import "sync"

// maxNotes bounds what is remembered of a chunk. What doesn't fit is verified each time.
const maxNotes = 64

// notes are what readers found out about bytes that begin in a chunk. They are the chunk's, so they are gone when its bytes are: a
// chunk that is fetched again is another one.
type notes struct {
	mu   sync.Mutex
	list []note
}

// note says that n bytes from off on have the checksum sum. tail is the serial of the chunk in which they end.
type note struct {
	off, n int64
	sum    uint32
	tail   uint64
}

// Verified tells whether SetVerified was called with the same arguments for these very bytes: not for what the same object's bytes
// were when they had been fetched another time. It must not be called after Release.
func (s Slices) Verified(off, n int64, sum uint32) bool {
	head, tail := s.span(off, n)
	if head == nil {
		return false
	}
	head.notes.mu.Lock()
	defer head.notes.mu.Unlock()
	for i := range head.notes.list {
		if head.notes.list[i] == (note{off, n, sum, tail.serial}) {
			return true
		}
	}
	return false
}

// SetVerified notes that the object's bytes [off, off+n), which lie in s, have the checksum sum, whatever that is to the caller. It
// is advice: it is not kept for bytes that lie in more than two chunks, nor for more than a few pieces of a chunk. It must not
// be called after Release.
func (s Slices) SetVerified(off, n int64, sum uint32) {
	head, tail := s.span(off, n)
	if head == nil {
		return
	}
	x := note{off, n, sum, tail.serial}
	head.notes.mu.Lock()
	defer head.notes.mu.Unlock()
	for i := range head.notes.list {
		if old := &head.notes.list[i]; old.off == off && old.n == n {
			*old = x // the chunk behind was fetched again
			return
		}
	}
	if len(head.notes.list) < maxNotes {
		head.notes.list = append(head.notes.list, x)
	}
}

// span returns the chunks in which [off, off+n) begins and ends, nil unless the Read holds both and nothing is between them.
func (s Slices) span(off, n int64) (head, tail *chunk) {
	if s.pins == nil || n <= 0 || off < 0 {
		return nil, nil
	}
	size, chunks := int64(s.pins.c.o.ChunkBytes), s.pins.chunks
	first := off/size - chunks[0].idx
	last := (off+n-1)/size - chunks[0].idx
	if first < 0 || last >= int64(len(chunks)) || last-first > 1 {
		return nil, nil
	}
	return chunks[first], chunks[last]
}
