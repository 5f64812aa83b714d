package segment

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"syscall"

	"github.com/tierbroker/tierbroker/frame"
)

// scanAll reads the log from r.from on and finds its end and its damage.
func (r *recovery) scanAll() error {
	if len(r.chain) == 0 {
		r.end = r.from
		r.res.Start, r.res.End = r.from, r.from
		return nil
	}
	r.res.Start = r.chain[0].first()
	first := r.first()
	for i, f := range r.chain {
		if i < first {
			if f.end == 0 {
				f.end = f.base + uint64(f.size)&^7
			}
			r.end = max(f.end, f.first())
			continue
		}
		cut, err := r.scanFile(i)
		if err != nil {
			return err
		}
		r.end = f.end
		if cut {
			r.abandon(i + 1)
			break
		}
	}
	if len(r.chain) > 0 {
		r.checkSize(r.chain[len(r.chain)-1])
	}
	// A file without frames is passed over: the next header names the one before it.
	for n := len(r.chain) - 1; n >= 0 && r.chain[n].end <= r.chain[n].first(); n-- {
		r.abandoned = append(r.abandoned, r.chain[n])
		r.chain = r.chain[:n]
	}
	if n := len(r.chain); n > 0 {
		r.end = r.chain[n-1].end
	} else {
		r.res.Start = r.end
	}
	r.res.End = r.end
	return nil
}

// checkSize reports a last file that was cut from outside. A file has its full size before it has its name, and recovery
// seals the last one before it gives back what is behind the end. So a shorter one may have lost what was synced, even
// when all that is left of it is intact.
func (r *recovery) checkSize(f *found) {
	want := uint64(FileHeaderLen)
	if f.ok {
		want = f.hdr.Capacity
	}
	if !f.sealed && uint64(f.size) < want {
		r.corrupt(f.name, max(f.end, f.base), frame.PartitionID{}, fmt.Sprintf("something has cut the file to %d bytes; what followed is lost", f.size))
	}
}

// first is the file that holds r.from.
func (r *recovery) first() int {
	return max(sort.Search(len(r.chain), func(i int) bool { return r.chain[i].base > r.from })-1, 0)
}

// abandon gives up the files from the k-th on: they lie behind a torn tail.
func (r *recovery) abandon(k int) {
	r.abandoned = append(r.abandoned, r.chain[k:]...)
	r.chain = r.chain[:k]
}

// scanFile checks the frames of one file. cut says that the log ends in it.
func (r *recovery) scanFile(i int) (cut bool, err error) {
	f := r.chain[i]
	s := r.scanner(f)
	pos := max(f.first(), r.from)
	if !f.ok {
		if cut, err := r.noHeader(i); err != nil || cut {
			return cut, err
		}
	}
	for pos < s.limit {
		h, hlen, ok, err := s.header(pos)
		if err != nil {
			return false, err
		}
		reason := error(nil)
		if ok {
			var p []byte
			if p, reason, err = s.payload(pos, &h, hlen); err != nil {
				return false, err
			}
			if reason == nil {
				s.incarnation = h.Incarnation
				r.synced = max(r.synced, h.Synced)
				pos += uint64(FrameLen(hlen, len(p)))
				continue
			}
		}
		next, cut, err := r.damage(i, s, pos, &h, hlen, reason)
		if err == nil && next > pos {
			r.skip = append(r.skip, span{from: pos, to: next})
		}
		if err != nil || cut {
			return cut, err
		}
		pos = next
	}
	switch {
	case f.end == 0:
		f.end = max(min(pos, s.limit), f.first())
	case f.end > s.limit:
		r.corrupt(f.name, s.limit, frame.PartitionID{}, fmt.Sprintf("file is cut short by %d bytes", f.end-s.limit))
	}
	return false, nil
}

// noHeader decides what a damaged file header means: a file whose first fdatasync never
// came, so that the log ends before it (cut), or corruption.
func (r *recovery) noHeader(i int) (cut bool, err error) {
	f := r.chain[i]
	if r.synced <= f.first() && !f.hurt {
		torn, err := r.lookAhead(i, f.first())
		if err != nil {
			return false, err
		}
		if r.synced <= f.first() {
			f.end = f.first()
			r.res.Torn = torn
			return true, nil
		}
	}
	r.corrupt(f.name, f.base, frame.PartitionID{}, "file header is damaged")
	return false, nil
}

// damage decides what the bytes at pos, which are no valid frame, mean: a torn tail, so
// that the log ends here (cut), or corruption, so that it goes on at next. reason is set
// when the frame's header h is intact.
func (r *recovery) damage(i int, s *scanner, pos uint64, h *frame.Header, hlen int, reason error) (next uint64, cut bool, err error) {
	f := r.chain[i]
	n := uint64(frame.HeaderLen)
	if reason != nil {
		n = uint64(FrameLen(hlen, int(h.PayloadLen)))
	}
	// Neither an intact frame of a newer program nor what the disk can't read is a torn
	// tail.
	hurt := s.unreadable(pos, n)
	if r.synced <= pos && !hurt && !errors.Is(reason, frame.ErrVersion) {
		torn, err := r.lookAhead(i, pos)
		if err != nil {
			return 0, false, err
		}
		if r.synced <= pos {
			f.end = pos
			r.res.Torn = torn
			return pos, true, nil
		}
	}
	if reason != nil {
		r.corrupt(f.name, pos, h.ID, reason.Error())
		return pos + n, false, nil
	}
	next, ok, err := s.resync(pos + 8)
	if err != nil {
		return 0, false, err
	}
	last := i == len(r.chain)-1
	switch {
	case ok:
		r.corrupt(f.name, pos, frame.PartitionID{}, fmt.Sprintf("no valid frame in %d bytes", next-pos))
		return next, false, nil
	case f.end != 0 || last:
		// Nothing but damage up to the known end, or to what was known to be synced, or
		// to where the disk can be read again.
		next = s.limit
		if f.end == 0 {
			for next = max(r.synced, pos); s.unreadable(next, 1); {
				next = (next/scanPage + 1) * scanPage
			}
			next = min(s.limit, (next+7)&^7)
			f.end = next
		}
		r.corrupt(f.name, pos, frame.PartitionID{}, fmt.Sprintf("no valid frame in %d bytes", next-pos))
		return next, last, nil
	default:
		// The next file lost its header and with it the end of this one; that damage
		// is reported there.
		s.limit = pos
		return pos, false, nil
	}
}

// lookAhead finds the highest synced position that any frame behind pos knows of, and
// how many bytes of frames there are. What a torn tail left behind never knows of itself
// as synced.
func (r *recovery) lookAhead(i int, pos uint64) (torn int64, err error) {
	for ; i < len(r.chain); i++ {
		f := r.chain[i]
		s := r.scanner(f)
		at := max(pos, f.first())
		for at < s.limit {
			next, ok, err := s.resync(at)
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
			h, hlen, _, err := s.header(next)
			if err != nil {
				return 0, err
			}
			r.synced = max(r.synced, h.Synced)
			at = next + uint64(FrameLen(hlen, int(h.PayloadLen)))
			torn += int64(at - next)
		}
	}
	return torn, nil
}

// visitAll shows the frames from r.from on, stepping over what scanAll found damaged.
func (r *recovery) visitAll() error {
	if len(r.chain) == 0 {
		return nil
	}
	skip := r.skip
	for _, f := range r.chain[r.first():] {
		s := r.scanner(f)
		for pos := max(f.first(), r.from); pos < s.limit; {
			for len(skip) > 0 && skip[0].to <= pos {
				skip = skip[1:]
			}
			if len(skip) > 0 && skip[0].from <= pos {
				pos = skip[0].to
				continue
			}
			h, hlen, ok, err := s.header(pos)
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("segment: frame at %d in %s was intact, and is not any more", pos, f.name)
			}
			p, err := s.bytes(pos, &h, hlen)
			if err != nil {
				return err
			}
			if err := r.visit(Frame{Header: h, Payload: p, File: f.base}); err != nil {
				return err
			}
			pos += uint64(FrameLen(hlen, len(p)))
		}
	}
	return nil
}

// rewrite reads the part of the log that no one knows to be synced, writes the same
// bytes again, and syncs. A write-back that failed in an earlier life may have left
// pages that look clean but never reached the disk; writing makes them dirty again.
func (r *recovery) rewrite() error {
	var buf []byte
	for _, f := range r.chain {
		at := max(f.first(), r.synced)
		if f.end <= at {
			continue
		}
		if at == f.first() {
			at = f.base // nor is the header known to be synced
		}
		if buf == nil {
			buf = make([]byte, scanWindow)
		}
		if err := rewriteRange(f, at, buf); err != nil {
			return err
		}
		if err := f.f.Sync(); err != nil {
			return fmt.Errorf("segment: sync %s: %w", f.name, err)
		}
	}
	return nil
}

func rewriteRange(f *found, at uint64, buf []byte) error {
	for at < f.end {
		p := buf[:min(uint64(len(buf))-at%scanPage, f.end-at)]
		n, err := f.f.ReadAt(p, int64(at-f.base))
		if n < len(p) && errors.Is(err, syscall.EIO) {
			if len(buf) > scanPage {
				buf = buf[:scanPage] // page by page, leaving alone what can't be read
			} else {
				at += uint64(len(p))
			}
			continue
		}
		if n < len(p) && !errors.Is(err, io.EOF) {
			return fmt.Errorf("segment: read back %s: %w", f.name, err)
		}
		if _, err := f.f.Writev([][]byte{p}, int64(at-f.base)); err != nil {
			return fmt.Errorf("segment: write back %s: %w", f.name, err)
		}
		at += uint64(len(p))
	}
	return nil
}
