package integration

import (
	"crypto/tls"
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bytes that are no Kafka end their connection, and nothing else.
func TestAttackForeignProtocols(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	garbage := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		b[0] |= 0x40 // as a length, it is beyond any limit
		return b
	}
	for name, bytes := range map[string][]byte{
		"garbage":           garbage(4096),
		"much garbage":      garbage(1 << 20),
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
		"SSH":               []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"zeros":             make([]byte, 4096),
		"a negative length": bigendian.BigEndian.AppendUint32(nil, 1<<31|5),
		"too long":          bigendian.BigEndian.AppendUint32(nil, 1<<31-1),
		"no room for a key": {0, 0, 0, 1, 0},
		"an unknown API":    {0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"a lower version":   {0, 0, 0, 10, 0, 0, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff},
	} {
		for range 20 {
			c := s.dial()
			_ = c.write(bytes) // the broker may have hung up in the middle
			require.NoError(t, c.closed(attackPause), name)
			require.NoError(t, c.Close())
		}
	}
	for range 20 {
		c := s.dial()
		require.NoError(t, c.SetDeadline(time.Now().Add(attackPause)))
		err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
		require.Error(t, err)
		late, ok := err.(net.Error)
		require.False(t, ok && late.Timeout(), "the TLS hello was left hanging")
		require.NoError(t, c.Close())
	}
	s.lift("foreign protocols")
}

// Connections that announce much and send little, that stop in the middle, or that never read, take no memory to speak of.
func TestAttackHalfRequests(t *testing.T) {
	s := besiege(t)
	// Announced, begun, and never ended: the largest requests that are allowed.
	for range 40 {
		c := s.dial()
		require.NoError(t, c.write(bigendian.BigEndian.AppendUint32(nil, 100<<20)))
		_ = c.write([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff})
	}
	s.progress()
	// Every length of a beginning, then silence, an end, or a reset.
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(9)
	full := append([]byte{0, 0, 0, 0, 0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0}, req.AppendTo(nil)...)
	bigendian.BigEndian.PutUint32(full, uint32(len(full)-4))
	for n := range full {
		for _, end := range []func(*net.TCPConn) error{
			func(*net.TCPConn) error { return nil },
			func(c *net.TCPConn) error { return c.CloseWrite() },
			func(c *net.TCPConn) error { return c.Close() },
			func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
		} {
			c := s.dial()
			require.NoError(t, c.write(full[:n]))
			require.NoError(t, end(c.Conn.(*net.TCPConn)))
		}
	}
	s.progress()
	// Requests whose answers nobody reads.
	all := kmsg.NewPtrMetadataRequest()
	all.SetVersion(9)
	all.Topics = nil
	body := all.AppendTo(nil)
	for range 8 {
		c := s.dial()
		for range 20_000 {
			if c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)) != nil {
				break
			}
			f := append([]byte{0, 0, 0, 0, 0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0}, body...)
			bigendian.BigEndian.PutUint32(f, uint32(len(f)-4))
			if _, err := c.Write(f); err != nil {
				break // the broker takes no more, as it should
			}
		}
	}
	s.lift("half requests")
}

// Thousands of connections, idle ones and ones that come and go, leave room for others.
func TestAttackManyConnections(t *testing.T) {
	s := besiege(t)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	many := min(3000, int(limit.Cur)/3)
	for i := range many {
		c := s.dial()
		if i%3 == 0 {
			require.NoError(t, c.write([]byte{0, 0, 1, 0, 0, 3}))
		}
	}
	s.progress()
	for range many {
		c, err := net.DialTimeout("tcp", s.kafka, attackPause)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.Close())
	}
	s.lift(fmt.Sprint(many, " idle connections and as many short ones"))
}

// A second signal ends the broker at once, though it waits for clients that don't take their answers.
func TestSecondSignal(t *testing.T) {
	n := newNode(t)
	n.start()
	n.tierctl("topic", "create", "t")
	w := newWire(t, n)
	for range 24 {
		require.NoError(t, w.produce("t", 0, make([]byte, 900<<10)).err)
	}
	s := &siege{node: n, t: t}
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 20 << 20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", []kmsg.FetchRequestTopicPartition{p}
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.ReplicaID, req.MaxBytes, req.SessionEpoch, req.Topics = -1, 50<<20, -1, []kmsg.FetchRequestTopic{topic}
	c := s.dial()
	require.NoError(t, c.frame(1, 11, false, req.AppendTo(nil)))
	first := make([]byte, 4) // the answer is on its way; the rest of it is never read
	require.NoError(t, c.SetReadDeadline(time.Now().Add(attackPause)))
	_, err := c.Read(first)
	require.NoError(t, err)

	require.NoError(t, n.cmd.Process.Signal(syscall.SIGTERM))
	n.eventually(attackPause, "the log tells of the signal", func() bool {
		return strings.Contains(n.out.String(), "another signal ends the process at once")
	})
	began := time.Now()
	require.NoError(t, n.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-n.exited:
	case <-time.After(attackPause):
		t.Fatal("the broker goes on")
	}
	require.NotContains(t, n.out.String(), "stopped", "it had ended before the second signal: the test shows nothing")
	require.Equal(t, 1, n.cmd.ProcessState.ExitCode())
	require.Less(t, time.Since(began), 3*time.Second)
	n.cmd = nil
	n.start()
	require.NoError(t, newWire(t, n).produce("t", 0, []byte("on")).err)
}
