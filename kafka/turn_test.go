package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request that waits for its turn in Handle goes on when all before it are answered, and not earlier.
func TestAwaitTurn(t *testing.T) {
	answer := make(chan struct{})
	var inTurn [4]chan struct{}
	for i := range inTurn {
		inTurn[i] = make(chan struct{})
	}
	s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
		if string(r.Body) == "wide" {
			if err := r.Conn.AwaitTurn(ctx); err != nil {
				return Done{None: true, Close: err}
			}
			close(inTurn[r.Correlation])
			return Done{Bufs: net.Buffers{[]byte("wide")}}
		}
		return PendingFunc(func(ctx context.Context) Response {
			select {
			case <-answer:
			case <-ctx.Done():
			}
			return Response{Bufs: net.Buffers{[]byte("x")}}
		})
	}), func(o *Options) { o.MaxInflightPerConn = 3 })
	c := s.dial()
	c.send(frame(0, []byte("poll")))
	c.send(frame(1, []byte("wide")))
	c.send(frame(2, []byte("wide")))
	s.dial().send(frame(3, []byte("wide"))) // nothing is before it
	<-inTurn[3]
	for i := range inTurn[:3] {
		select {
		case <-inTurn[i]:
			t.Fatalf("request %d came before its turn", i)
		default:
		}
	}
	close(answer)
	<-inTurn[1]
	<-inTurn[2]
	for i := range 3 {
		correlation, _ := c.receive()
		require.EqualValues(t, i, correlation)
	}
	require.NoError(t, NewDetachedConn("x", nil).AwaitTurn(t.Context()))
}

// A client that goes away ends the wait for a turn.
func TestAwaitTurnEnds(t *testing.T) {
	waited := make(chan error, 1)
	s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
		if r.Correlation == 1 {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			waited <- r.Conn.AwaitTurn(ctx)
		}
		return PendingFunc(func(ctx context.Context) Response {
			<-ctx.Done()
			return Response{}
		})
	}), nil)
	c := s.dial()
	c.send(append(frame(0, nil), frame(1, nil)...))
	require.ErrorIs(t, <-waited, context.Canceled)
	c.Close()
}

// While large frames that aren't sent to their end hold the whole budget, small requests are answered.
func TestSmallFramesNeedNoBudget(t *testing.T) {
	s := start(t, echo, func(o *Options) { o.MaxInflightBytes = 1 << 20 })
	begun := binary.BigEndian.AppendUint32(nil, 50<<20)
	begun = append(begun, make([]byte, firstStep)...)
	for range 20 {
		s.dial().send(begun)
	}
	eventually(t, func() bool { return s.Stats().InflightBytes > 1<<20 })
	for i := range 10 {
		c := s.dial()
		c.roundTrip(int32(i))
		c.send(frame(1, make([]byte, smallFrame-100)))
		_, body := c.receive()
		require.Len(t, body, smallFrame-100)
	}
}
