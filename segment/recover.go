package segment

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

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
	Newest      uint64 // first position of the newest file whose header is intact, 0 without one
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
	hurt bool   // the disk can't deliver the header
	end  uint64 // where its frames end, once that is known
	sure bool   // end is known, and all below it was synced
	// sealed: it was the last file when it was closed or recovered; nothing follows end.
	sealed bool
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
	skip      []span // damaged
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
		r.res.Newest = max(r.res.Newest, f.first())
	}
	f.hurt = len(sc.bad) > 0
	if f.ok {
		if s, ok := decodeSeal(block, &f.hdr); ok {
			f.end, f.sure, f.sealed = s.End, true, true
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
		r.checkSize(r.all[i])
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
		switch {
		case pred.base == f.hdr.PredBase && pred.sealed && pred.end != f.hdr.PredEnd && f.hdr.Kind == kindRotated:
			// An earlier recovery has ended the log in pred, and came no further.
			r.abandoned = append(r.abandoned, r.chain...)
			r.chain = r.chain[:0]
		case pred.base == f.hdr.PredBase:
			pred.end, pred.sure = f.hdr.PredEnd, f.hdr.Kind == kindOpened || pred.sure && pred.end == f.hdr.PredEnd
		default:
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
		return f.hurt, nil
	}
	_, ok, err := s.resync(f.first())
	return ok || f.hurt || len(s.bad) > 0, err
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
