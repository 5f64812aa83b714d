package segment

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/tierbroker/tierbroker/frame"
)

// Frame is what Open shows of a frame. Payload and extensions are valid during the call.
type Frame struct {
	frame.Header
	Payload []byte
	File    uint64 // base position of its file
}

// Recovered is what Open found.
type Recovered struct {
	Start       uint64 // first position of the oldest file
	End         uint64 // position after the last frame
	Torn        int64  // bytes of never-synced frames that were cut off behind End
	Corrupt     []Corruption
	Incarnation uint64 // of the new life of the log
}

// Corruption is damage to what had been synced. ID is zero when nothing tells it.
type Corruption struct {
	File     string
	Position uint64
	ID       frame.PartitionID
	Reason   string
}

// found is a log file as recovery sees it.
type found struct {
	name string
	base uint64
	size int64
	f    File
	hdr  FileHeader
	ok   bool   // hdr is valid
	end  uint64 // where its frames end, once that is known
	sure bool   // end is known, and all below it was synced
}

func (f *found) first() uint64 { return f.base + FileHeaderLen }

// space is the end of the positions that the file may own.
func (f *found) space(fileBytes int64) uint64 {
	n := uint64(max(f.size, fileBytes))
	if f.ok {
		n = max(n, f.hdr.Capacity)
	}
	return f.base + (n+4095)&^4095
}

// recovery reads a directory; it changes nothing.
type recovery struct {
	o         Options
	from      uint64
	visit     func(Frame) error
	all       []*found // by base
	chain     []*found // the log, oldest first
	abandoned []*found // passed over by a later header, or never finished
	spares    []FileStat
	dropped   []string
	synced    uint64 // highest position known to be synced
	end       uint64
	res       Recovered
}

func (r *recovery) run() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := r.list(); err != nil {
		return err
	}
	if err := r.link(); err != nil {
		return err
	}
	r.synced = max(r.synced, r.from)
	for _, f := range r.chain {
		if f.ok {
			r.synced = max(r.synced, f.hdr.Synced)
		}
		if f.sure {
			r.synced = max(r.synced, f.end)
		}
	}
	return r.scanAll()
}

func (r *recovery) close() error {
	var errs []error
	for _, f := range r.all {
		if f.f != nil {
			errs = append(errs, f.f.Close())
			f.f = nil
		}
	}
	return errors.Join(errs...)
}

// list opens every log file and reads its header.
func (r *recovery) list() error {
	stats, err := r.o.FS.List(r.o.Dir)
	if err != nil {
		return fmt.Errorf("segment: list %s: %w", r.o.Dir, err)
	}
	for _, st := range stats {
		if spare, dropped := spareName(st.Name); spare {
			r.spares = append(r.spares, st)
			continue
		} else if dropped {
			r.dropped = append(r.dropped, st.Name)
			continue
		}
		base, ok := parseLogName(st.Name)
		if !ok {
			continue
		}
		f := &found{name: st.Name, base: base, size: st.Size}
		r.all = append(r.all, f)
		if err := r.readHeader(f); err != nil {
			return err
		}
	}
	sort.Slice(r.all, func(i, j int) bool { return r.all[i].base < r.all[j].base })
	return nil
}

func parseLogName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, ".log")
	base, err := strconv.ParseUint(hex, 16, 64)
	return base, ok && err == nil && base <= maxPosition && name == logName(base)
}

func (r *recovery) readHeader(f *found) error {
	var err error
	if f.f, err = r.o.FS.Open(joinPath(r.o.Dir, f.name), false); err != nil {
		return fmt.Errorf("segment: open %s: %w", f.name, err)
	}
	block := make([]byte, FileHeaderLen)
	sc := scanner{f: f.f, base: f.base}
	if err := sc.fill(block, 0); err != nil {
		return err
	}
	f.hdr, err = DecodeFileHeader(block)
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("segment: open %s: %w", f.name, err)
	}
	f.ok = err == nil && f.hdr.Base == f.base
	if f.ok {
		if s, ok := decodeSeal(block, &f.hdr); ok {
			f.end, f.sure = s.End, true
		}
	}
	return nil
}

// link finds the files that make up the log, from the newest one backwards: each header
// names its predecessor and where that one ended.
func (r *recovery) link() error {
	i := len(r.all) - 1
	for ; i >= 0 && !r.all[i].ok; i-- {
		// Without a header: either a file that was being made when the power went, or
		// damage. Only frames in it tell.
		if some, err := r.hasFrames(r.all[i]); err != nil {
			return err
		} else if some {
			break
		}
		r.abandoned = append(r.abandoned, r.all[i])
	}
	for i >= 0 {
		f := r.all[i]
		r.chain = append(r.chain, f)
		i--
		if !f.ok {
			continue // its predecessor is the next older file, its end unknown
		}
		for i >= 0 && (!f.hdr.HasPred || r.all[i].base > f.hdr.PredBase) {
			r.abandoned = append(r.abandoned, r.all[i])
			i--
		}
		if i < 0 {
			break
		}
		pred := r.all[i]
		if pred.base == f.hdr.PredBase {
			pred.end, pred.sure = f.hdr.PredEnd, f.hdr.Kind == kindOpened || pred.sure && pred.end == f.hdr.PredEnd
		} else {
			r.corrupt(logName(f.hdr.PredBase), f.hdr.PredBase, frame.PartitionID{}, "file is missing")
		}
	}
	for i, j := 0, len(r.chain)-1; i < j; i, j = i+1, j-1 {
		r.chain[i], r.chain[j] = r.chain[j], r.chain[i]
	}
	return nil
}

func (r *recovery) hasFrames(f *found) (bool, error) {
	s := r.scanner(f)
	if s.limit <= f.first() {
		return false, nil
	}
	_, ok, err := s.resync(f.first())
	return ok || len(s.bad) > 0, err
}

// scanner reads f up to its known end, or as far as it can reach.
func (r *recovery) scanner(f *found) *scanner {
	s := &scanner{f: f.f, base: f.base, limit: f.base + uint64(f.size)&^7}
	if f.ok {
		s.incarnation = f.hdr.Incarnation
		s.limit = min(s.limit, f.base+f.hdr.Capacity)
	}
	if f.end != 0 {
		s.limit = min(s.limit, f.end)
	}
	return s
}

func (r *recovery) corrupt(name string, pos uint64, id frame.PartitionID, reason string) {
	r.res.Corrupt = append(r.res.Corrupt, Corruption{File: name, Position: pos, ID: id, Reason: reason})
}

// scanAll visits the frames from r.from on and finds the end of the log.
func (r *recovery) scanAll() error {
	if len(r.chain) == 0 {
		r.end = r.from
		r.res.Start, r.res.End = r.from, r.from
		return nil
	}
	r.res.Start = r.chain[0].first()
	first := sort.Search(len(r.chain), func(i int) bool { return r.chain[i].base > r.from }) - 1
	first = max(first, 0)
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

// abandon gives up the files from the k-th on: they lie behind a torn tail.
func (r *recovery) abandon(k int) {
	r.abandoned = append(r.abandoned, r.chain[k:]...)
	r.chain = r.chain[:k]
}

// scanFile visits the frames of one file. cut says that the log ends in it.
func (r *recovery) scanFile(i int) (cut bool, err error) {
	f := r.chain[i]
	s := r.scanner(f)
	pos := max(f.first(), r.from)
	if !f.ok {
		r.corrupt(f.name, f.base, frame.PartitionID{}, "file header is damaged")
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
				if err := r.visit(Frame{Header: h, Payload: p, File: f.base}); err != nil {
					return false, err
				}
				pos += uint64(FrameLen(hlen, len(p)))
				continue
			}
		}
		next, cut, err := r.damage(i, s, pos, &h, hlen, reason)
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
