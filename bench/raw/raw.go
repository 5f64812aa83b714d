// Package raw is a Kafka client that costs next to nothing: it sends Produce and Fetch requests whose bytes were made
// beforehand, several at a time on one connection, and looks only at error codes, offsets and sizes of the answers. So
// a benchmark measures the broker, and the same bytes go to ten partitions and to ten thousand.
package raw

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/batch"
)

const (
	keyProduce, produceVersion = 0, 7 // no tagged fields, current error codes
	keyFetch, fetchVersion     = 1, 11
	clientID                   = "bench"
)

// Batch makes one uncompressed batch of records of the given value size, at least one, about size bytes in all.
func Batch(size, value int, now int64) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{})
	v := make([]byte, value)
	for i := range v {
		v[i] = byte(i*7 + i>>8)
	}
	for {
		b.Add(now, nil, v, nil)
		if b.Len()+value+16 > size {
			return append([]byte(nil), b.Bytes()...)
		}
	}
}

// Conn is a connection; Produce and Fetch must not run at the same time.
type Conn struct {
	nc   net.Conn
	r    *bufio.Reader
	sent int32 // correlation id of the newest request
	head []byte
}

// Dial opens a connection.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{nc: nc, r: bufio.NewReaderSize(nc, 64<<10)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.nc.Close() }

// deadline makes a broker that hangs an error.
const deadline = 2 * time.Minute

// header begins a request whose body has n bytes in all.
func (c *Conn) header(key, version int16, n int) []byte {
	c.sent++
	b := binary.BigEndian.AppendUint32(c.head[:0], uint32(8+2+len(clientID)+n))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(c.sent))
	return appendString(b, clientID)
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// Produce is one Produce request, to be sent any number of times.
type Produce struct {
	body  []byte // up to the first partition
	parts [][]byte
	batch []byte
	acks  int16
	n     int
	vec   net.Buffers
}

// NewProduce makes a request that writes the same batch to each of the given partitions of a topic.
func NewProduce(topic string, partitions []int32, b []byte, acks int16) *Produce {
	p := &Produce{batch: b, acks: acks}
	p.body = binary.BigEndian.AppendUint16(p.body, 0xffff) // no transactional id
	p.body = binary.BigEndian.AppendUint16(p.body, uint16(acks))
	p.body = binary.BigEndian.AppendUint32(p.body, uint32(deadline.Milliseconds()))
	p.body = binary.BigEndian.AppendUint32(p.body, 1)
	p.body = appendString(p.body, topic)
	p.body = binary.BigEndian.AppendUint32(p.body, uint32(len(partitions)))
	p.n = len(p.body)
	for _, part := range partitions {
		h := binary.BigEndian.AppendUint32(nil, uint32(part))
		h = binary.BigEndian.AppendUint32(h, uint32(len(b)))
		p.parts = append(p.parts, h)
		p.n += len(h) + len(b)
	}
	return p
}

// Bytes is what the request's batches hold.
func (p *Produce) Bytes() int { return len(p.parts) * len(p.batch) }

// Send writes the request and doesn't wait for its answer.
func (c *Conn) Send(p *Produce) error {
	c.head = append(c.header(keyProduce, produceVersion, p.n), p.body...)
	vec := append(p.vec[:0], c.head)
	for _, h := range p.parts {
		vec = append(vec, h, p.batch)
	}
	p.vec = vec
	return c.write(vec)
}

func (c *Conn) write(vec net.Buffers) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	_, err := vec.WriteTo(c.nc)
	return err
}

// answer reads the size and the correlation id of the next answer and returns how many bytes follow.
func (c *Conn) answer() (int, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := io.ReadFull(c.r, b[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint32(b[:])) - 4
	if n < 0 {
		return 0, fmt.Errorf("an answer of %d bytes", n)
	}
	return n, nil
}

// Receive reads the next answer to a Send with acks other than 0. It fails on the first error code in it; buf is
// scratch memory.
func (c *Conn) Receive(buf *[]byte) error {
	n, err := c.answer()
	if err != nil {
		return err
	}
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	b := (*buf)[:n]
	if _, err := io.ReadFull(c.r, b); err != nil {
		return err
	}
	return checkProduced(b)
}

var errShort = errors.New("the answer is too short")

// checkProduced walks a Produce response of version 7.
func checkProduced(b []byte) error {
	if len(b) < 4 {
		return errShort
	}
	topics := int(binary.BigEndian.Uint32(b))
	b = b[4:]
	for range topics {
		if len(b) < 2 {
			return errShort
		}
		name := 2 + int(binary.BigEndian.Uint16(b))
		if len(b) < name+4 {
			return errShort
		}
		parts := int(binary.BigEndian.Uint32(b[name:]))
		b = b[name+4:]
		const one = 4 + 2 + 8 + 8 + 8
		if len(b) < parts*one {
			return errShort
		}
		for i := range parts {
			if code := int16(binary.BigEndian.Uint16(b[i*one+4:])); code != 0 {
				return fmt.Errorf("partition %d: %w", binary.BigEndian.Uint32(b[i*one:]), kerr.ErrorForCode(code))
			}
		}
		b = b[parts*one:]
	}
	return nil
}
