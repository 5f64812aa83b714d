package raw

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/batch"
)

// Fetch reads whole batches of one partition from an offset on, up to about maxBytes, and returns the offset behind the
// last one and their bytes. minBytes and wait (milliseconds) say how long the broker may hold the answer back. The
// batches' contents are read from the socket and thrown away.
func (c *Conn) Fetch(topic string, partition int32, offset int64, maxBytes, minBytes, wait int32) (next int64, bytes int, err error) {
	var body []byte
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // replica id
	body = binary.BigEndian.AppendUint32(body, uint32(wait))
	body = binary.BigEndian.AppendUint32(body, uint32(minBytes))
	body = binary.BigEndian.AppendUint32(body, uint32(maxBytes))
	body = append(body, 0)                                 // isolation level
	body = binary.BigEndian.AppendUint32(body, 0)          // no session
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // nor an epoch of one
	body = binary.BigEndian.AppendUint32(body, 1)
	body = appendString(body, topic)
	body = binary.BigEndian.AppendUint32(body, 1)
	body = binary.BigEndian.AppendUint32(body, uint32(partition))
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // leader epoch unknown
	body = binary.BigEndian.AppendUint64(body, uint64(offset))
	body = binary.BigEndian.AppendUint64(body, 0xffffffffffffffff) // log start offset
	body = binary.BigEndian.AppendUint32(body, uint32(maxBytes))
	body = binary.BigEndian.AppendUint32(body, 0) // forgotten topics
	body = appendString(body, "")                 // rack
	c.head = c.header(keyFetch, fetchVersion, len(body))
	if err := c.write(net.Buffers{c.head, body}); err != nil {
		return offset, 0, err
	}
	n, err := c.answer()
	if err != nil {
		return offset, 0, err
	}
	return c.fetched(topic, offset, n)
}

// fetched reads a Fetch response of version 11 for one partition; n bytes of it are left.
func (c *Conn) fetched(topic string, offset int64, n int) (next int64, bytes int, err error) {
	// throttle, error, session; one topic, one partition; index, error, three offsets, aborted, replica, size
	fixed := 4 + 2 + 4 + 4 + 2 + len(topic) + 4
	const part = 4 + 2 + 8 + 8 + 8
	head := make([]byte, fixed+part+4)
	if n < len(head) {
		return offset, 0, errShort
	}
	if _, err := io.ReadFull(c.r, head); err != nil {
		return offset, 0, err
	}
	n -= len(head)
	for _, at := range []int{4, fixed + 4} {
		if code := int16(binary.BigEndian.Uint16(head[at:])); code != 0 {
			return offset, 0, fmt.Errorf("fetch: %w", kerr.ErrorForCode(code))
		}
	}
	aborted := max(0, int(int32(binary.BigEndian.Uint32(head[fixed+part:])))) * 16
	tail := make([]byte, aborted+8)
	if n < len(tail) {
		return offset, 0, errShort
	}
	if _, err := io.ReadFull(c.r, tail); err != nil {
		return offset, 0, err
	}
	n -= len(tail)
	bytes = max(0, int(int32(binary.BigEndian.Uint32(tail[aborted+4:]))))
	if bytes > n {
		return offset, 0, errShort
	}
	next = offset
	for left := bytes; left > 0; {
		if left < batch.HeaderLen {
			return next, bytes, fmt.Errorf("%d bytes behind the last batch", left)
		}
		peek, err := c.r.Peek(batch.HeaderLen)
		if err != nil {
			return next, bytes, err
		}
		h, err := batch.ParseHeader(peek)
		if err != nil {
			return next, bytes, err
		}
		size := h.Size()
		if size > left {
			return next, bytes, fmt.Errorf("a batch of %d bytes in %d", size, left)
		}
		next = h.LastOffset() + 1
		if _, err := c.r.Discard(size); err != nil {
			return next, bytes, err
		}
		left -= size
	}
	_, err = c.r.Discard(n - bytes)
	return next, bytes, err
}
