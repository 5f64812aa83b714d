package integration

import (
	"context"
	bigendian "encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// attackMemory is how much anonymous memory a broker with default settings may take under attack: its budgets for requests
	// (256 MiB), half as much again for what a Go heap holds before it is collected, and what it takes idle.
	attackMemory = 700 << 20
	// attackPause is how long a polite client may be held up, on a machine that other tests share.
	attackPause = 15 * time.Second
)

// siege is a broker under attack, with a producer and a consumer that must not notice.
type siege struct {
	*node
	t      *testing.T
	cancel context.CancelFunc
	all    sync.WaitGroup

	sent, read atomic.Int64
	slowest    atomic.Int64 // longest time from produce to acknowledgement, in ns
	peak       atomic.Int64 // most anonymous memory, in bytes
}

func besiege(t *testing.T) *siege {
	t.Helper()
	s := &siege{node: newNode(t), t: t}
	s.start()
	s.tierctl("topic", "create", "polite", "--partitions", "2")
	s.tierctl("topic", "create", "victim", "--partitions", "2")
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.all.Go(func() { s.produce(ctx) })
	s.all.Go(func() { s.consume(ctx) })
	s.all.Go(func() { s.weigh(ctx, s.cmd.Process.Pid) })
	t.Cleanup(func() { cancel(); s.all.Wait() })
	s.progress()
	return s
}

// produce sends a record every few milliseconds; each has to be acknowledged in time.
func (s *siege) produce(ctx context.Context) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.DefaultProduceTopic("polite"), kgo.RecordRetries(0), kgo.ProducerLinger(0))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		began := time.Now()
		limit, cancel := context.WithTimeout(context.Background(), attackPause)
		err := cl.ProduceSync(limit, kgo.StringRecord(strconv.FormatInt(s.sent.Load(), 10))).FirstErr()
		cancel()
		if err != nil {
			s.t.Errorf("the polite producer: %v", err)
			return
		}
		s.slowest.Store(max(s.slowest.Load(), int64(time.Since(began))))
		s.sent.Add(1)
	}
}

// consume reads everything once.
func (s *siege) consume(ctx context.Context) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.ConsumeTopics("polite"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer cl.Close()
	seen := map[string]bool{}
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil && ctx.Err() == nil {
			s.t.Errorf("the polite consumer: %v", err)
			return
		}
		fs.EachRecord(func(r *kgo.Record) {
			if seen[string(r.Value)] {
				s.t.Errorf("the polite consumer got %s twice", r.Value)
			}
			seen[string(r.Value)] = true
			s.read.Add(1)
		})
	}
}

// weigh follows the broker's anonymous memory.
func (s *siege) weigh(ctx context.Context, pid int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return // it has ended, which other checks tell
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
				if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					s.peak.Store(max(s.peak.Load(), kb<<10))
				}
			}
		}
	}
}

// progress waits until the polite clients have got on.
func (s *siege) progress() {
	s.t.Helper()
	sent := s.sent.Load() + 20
	s.eventually(2*attackPause, "the polite clients get on", func() bool {
		return s.t.Failed() || s.sent.Load() >= sent && s.read.Load() >= sent
	})
	require.False(s.t, s.t.Failed(), "the polite clients were disturbed")
}

// lift ends the siege: everybody has got on, memory stayed within bounds, and the broker stops in order.
func (s *siege) lift(what string) {
	s.t.Helper()
	s.progress()
	s.cancel()
	s.all.Wait()
	s.t.Logf("%s: polite clients wrote %d records, read %d, slowest acknowledgement %v; most anonymous memory %d MiB", what,
		s.sent.Load(), s.read.Load(), time.Duration(s.slowest.Load()).Round(time.Millisecond), s.peak.Load()>>20)
	require.Less(s.t, s.peak.Load(), int64(attackMemory), "bytes of memory")
	s.stop()
	require.NotContains(s.t, s.out.String(), "goroutine ")
}

// raw is a connection that keeps to no protocol.
type raw struct {
	net.Conn
	id int32 // of the last request
}

func (s *siege) dial() *raw {
	s.t.Helper()
	c, err := net.DialTimeout("tcp", s.kafka, attackPause)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	return &raw{Conn: c}
}

// frame writes a request of any body.
func (c *raw) frame(key, version int16, flexible bool, body []byte) error {
	c.id++
	b := make([]byte, 4, 32+len(body))
	b = bigendian.BigEndian.AppendUint16(b, uint16(key))
	b = bigendian.BigEndian.AppendUint16(b, uint16(version))
	b = bigendian.BigEndian.AppendUint32(b, uint32(c.id))
	b = bigendian.BigEndian.AppendUint16(b, 6)
	b = append(b, "attack"...)
	if flexible {
		b = append(b, 0)
	}
	b = append(b, body...)
	bigendian.BigEndian.PutUint32(b, uint32(len(b)-4))
	return c.write(b)
}

func (c *raw) write(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(attackPause)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// answer reads one answer of at most 64 MiB.
func (c *raw) answer(limit time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := bigendian.BigEndian.Uint32(size[:])
	if n < 4 || n > 64<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, err
}

// closed waits until the broker has hung up.
func (c *raw) closed(limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		return fmt.Errorf("the connection is still open: %w", err)
	}
	return nil
}
