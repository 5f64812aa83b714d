package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/tierbroker/tierbroker/frame"
)

const (
	scanWindow = 1 << 20
	scanPage   = 4096
)

var magicBytes = binary.BigEndian.AppendUint32(nil, frame.Magic)

// scanner reads the frames of one file by pread, through a window that grows only as
// far as an intact frame header asks for.
type scanner struct {
	f           File
	base        uint64
	limit       uint64 // position where reading ends
	incarnation uint64 // 0 = that of the first valid frame
	buf         []byte
	off         int64          // file offset of buf[0]
	bad         map[int64]bool // pages that the disk can't deliver
	newer       error          // an ErrVersion of the last header that was ok
}

// window returns the bytes at pos: n, or fewer at the limit. They are valid until the
// next call. Pages that the disk can't deliver read as zeros, which no check accepts.
func (s *scanner) window(pos uint64, n int) ([]byte, error) {
	off := int64(pos - s.base)
	n = int(min(uint64(n), s.limit-pos))
	if off >= s.off && off+int64(n) <= s.off+int64(len(s.buf)) {
		return s.buf[off-s.off:][:n], nil
	}
	size := int(min(uint64(max(n, scanWindow)), s.limit-pos))
	if cap(s.buf) < size {
		s.buf = make([]byte, size)
	}
	s.buf, s.off = s.buf[:size], off
	if err := s.fill(s.buf, off); err != nil {
		s.buf = s.buf[:0]
		return nil, err
	}
	return s.buf[:n], nil
}

// fill reads p from the file at off. What the disk says it can't read is read again
// page by page, and then given up as zeros and noted in s.bad.
func (s *scanner) fill(p []byte, off int64) error {
	n, err := s.f.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		clear(p[n:])
		return nil
	case !errors.Is(err, syscall.EIO):
		return fmt.Errorf("segment: read the file at %d: %w", s.base, err)
	}
	for len(p) > 0 {
		k := min(len(p), scanPage-int(off%scanPage))
		n, err := s.f.ReadAt(p[:k], off)
		switch {
		case n == k || errors.Is(err, io.EOF):
			clear(p[n:k])
		case errors.Is(err, syscall.EIO):
			clear(p[:k])
			if s.bad == nil {
				s.bad = make(map[int64]bool)
			}
			s.bad[off/scanPage] = true
		default:
			return fmt.Errorf("segment: read the file at %d: %w", s.base, err)
		}
		p, off = p[k:], off+int64(k)
	}
	return nil
}

// unreadable says whether the disk failed to deliver a part of [pos, pos+n).
func (s *scanner) unreadable(pos, n uint64) bool {
	if len(s.bad) == 0 {
		return false
	}
	for page := int64(pos-s.base) / scanPage; page*scanPage < int64(pos+n-s.base); page++ {
		if s.bad[page] {
			return true
		}
	}
	return false
}

// header decodes the frame header at pos. ok is false when no frame of this file's
// life starts there; err is only for reading.
func (s *scanner) header(pos uint64) (h frame.Header, hlen int, ok bool, err error) {
	if pos >= s.limit || s.limit-pos < frame.HeaderLen {
		return h, 0, false, nil
	}
	b, err := s.window(pos, frame.HeaderLen)
	if err != nil || !bytes.HasPrefix(b, magicBytes) {
		return h, 0, false, err
	}
	if b, err = s.window(pos, frame.MaxHeaderLen+frame.CoveredPayload); err != nil {
		return h, 0, false, err
	}
	h, hlen, s.newer = frame.Decode(b)
	if s.newer != nil && !errors.Is(s.newer, frame.ErrVersion) {
		return h, 0, false, nil
	}
	n := uint64(FrameLen(hlen, int(h.PayloadLen)))
	if h.Position != pos || (s.incarnation != 0 && h.Incarnation != s.incarnation) || n > s.limit-pos {
		return h, 0, false, nil
	}
	return h, hlen, true, nil
}

// bytes returns the payload of the frame at pos, whose header came from the window. The
// window may move; then what the header points to is decoded again from it.
func (s *scanner) bytes(pos uint64, h *frame.Header, hlen int) ([]byte, error) {
	off := s.off
	b, err := s.window(pos, hlen+int(h.PayloadLen))
	if err != nil {
		return nil, err
	}
	if s.off != off {
		again, _, err := frame.Decode(b)
		if err != nil && !errors.Is(err, frame.ErrVersion) {
			return nil, fmt.Errorf("segment: frame at %d changed while it was read: %w", pos, err)
		}
		*h = again
	}
	return b[hlen:], nil
}

// payload reads and verifies the payload of the frame at pos. A bad one is reported as
// its reason.
func (s *scanner) payload(pos uint64, h *frame.Header, hlen int) (p []byte, reason, err error) {
	if p, err = s.bytes(pos, h, hlen); err != nil {
		return nil, nil, err
	}
	if s.newer != nil {
		return p, s.newer, nil
	}
	return p, frame.Verify(h, p), nil
}

// resync finds the first frame header of this life at or after pos.
func (s *scanner) resync(pos uint64) (uint64, bool, error) {
	sparse, _ := s.f.(interface{ NextData(int64) (int64, bool) })
	for pos = (pos + 7) &^ 7; pos < s.limit; {
		if sparse != nil {
			next, ok := sparse.NextData(int64(pos - s.base))
			if !ok {
				break
			}
			pos = max(pos, s.base+uint64(next)&^7)
		}
		b, err := s.window(pos, scanWindow)
		if err != nil {
			return 0, false, err
		}
		at := nextMagic(b)
		if at < 0 {
			pos += uint64(len(b)+7) &^ 7
			continue
		}
		pos += uint64(at)
		if _, _, ok, err := s.header(pos); err != nil || ok {
			return pos, ok, err
		}
		pos += 8
	}
	return 0, false, nil
}

// nextMagic returns the first multiple of 8 in b where a frame may start, or -1.
func nextMagic(b []byte) int {
	for at := 0; at < len(b); {
		i := bytes.Index(b[at:], magicBytes)
		if i < 0 {
			return -1
		}
		if at += i; at%8 == 0 {
			return at
		}
		at++
	}
	return -1
}
