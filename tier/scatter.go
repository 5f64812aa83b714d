package tier

import (
	"hash/crc32"

	"github.com/tierbroker/tierbroker/batch"
)

// scatter is a run of bytes that lies in several slices. Batches and their headers may cross from one into the next.
type scatter struct {
	bufs [][]byte
	size int64
}

func newScatter(bufs [][]byte) scatter {
	s := scatter{bufs: bufs}
	for _, b := range bufs {
		s.size += int64(len(b))
	}
	return s
}

// cursor walks a scatter forward.
type cursor struct {
	s   *scatter
	i   int   // slice
	off int   // in it
	pos int64 // from the start of the scatter
}

// seek moves to pos, which must not lie behind.
func (c *cursor) seek(pos int64) {
	for n := pos - c.pos; n > 0; {
		left := int64(len(c.s.bufs[c.i]) - c.off)
		if n < left {
			c.off += int(n)
			break
		}
		n -= left
		c.i, c.off = c.i+1, 0
	}
	c.pos = pos
}

// header parses the batch header at the cursor. scratch is used when it crosses slices.
func (c *cursor) header(scratch *[batch.HeaderLen]byte) (batch.Header, error) {
	if c.i < len(c.s.bufs) {
		if b := c.s.bufs[c.i][c.off:]; len(b) >= batch.HeaderLen {
			return batch.ParseHeader(b)
		}
	}
	n, off := 0, c.off
	for i := c.i; i < len(c.s.bufs) && n < batch.HeaderLen; i++ {
		n += copy(scratch[n:], c.s.bufs[i][off:])
		off = 0
	}
	return batch.ParseHeader(scratch[:n])
}

// crc returns the CRC32C of the n bytes at the cursor, and moves behind them.
func (c *cursor) crc(n int64) uint32 {
	var crc uint32
	c.pos += n
	for n > 0 {
		b := c.s.bufs[c.i][c.off:]
		if int64(len(b)) > n {
			crc = crc32.Update(crc, castagnoli, b[:n])
			c.off += int(n)
			return crc
		}
		crc = crc32.Update(crc, castagnoli, b)
		n -= int64(len(b))
		c.i, c.off = c.i+1, 0
	}
	return crc
}

// cut appends the slices of [from, to) to dst. They share memory with the scatter.
func (s *scatter) cut(dst [][]byte, from, to int64) [][]byte {
	for _, b := range s.bufs {
		n := int64(len(b))
		if from < n && to > 0 {
			dst = append(dst, b[max(from, 0):min(to, n):min(to, n)])
		}
		from, to = from-n, to-n
	}
	return dst
}

// join returns the bytes of [from, to), copied only when they cross slices.
func (s *scatter) join(from, to int64) []byte {
	parts := s.cut(make([][]byte, 0, 2), from, to)
	if len(parts) == 1 {
		return parts[0]
	}
	out := make([]byte, 0, to-from)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
