package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type greeting struct {
	Text string `json:"text"`
}

// serve runs a server with a few calls and returns its address.
func serve(t *testing.T, tc *tls.Config, o Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.ClusterID = "c1"
	o.OnFault = func(err error) { t.Error(err) }
	o.Calls = map[string]Call{
		"echo": Handle(func(_ context.Context, in greeting) (greeting, error) { return in, nil }),
		"refuse": Handle(func(context.Context, greeting) (greeting, error) {
			return greeting{}, fmt.Errorf("%w: not the leader", ErrRefused)
		}),
		"fail": Handle(func(context.Context, greeting) (greeting, error) { return greeting{}, fmt.Errorf("the disk is gone") }),
		"wait": Handle(func(ctx context.Context, _ greeting) (greeting, error) {
			<-ctx.Done()
			return greeting{}, ctx.Err()
		}),
	}
	wait := o.Calls["wait"]
	wait.Timeout = 50 * time.Millisecond
	o.Calls["wait"] = wait
	s := Serve(l, tc, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
	})
	scheme := "http"
	if tc != nil {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String()
}

func newClient(t *testing.T, o ClientOptions) *Client {
	if o.ClusterID == "" {
		o.ClusterID = "c1"
	}
	c := NewClient(o)
	t.Cleanup(c.Close)
	return c
}

func TestCalls(t *testing.T) {
	at := serve(t, nil, Options{})
	c := newClient(t, ClientOptions{})
	ctx := t.Context()
	var out greeting
	require.NoError(t, c.Do(ctx, at, "echo", greeting{"hello"}, &out))
	require.Equal(t, "hello", out.Text)
	require.NoError(t, c.Do(ctx, at+"/", "echo", greeting{"hello"}, nil))
	require.ErrorIs(t, c.Do(ctx, at, "refuse", greeting{}, nil), ErrRefused)
	require.ErrorIs(t, c.Do(ctx, at, "none", greeting{}, nil), ErrUnknownCall)
	require.ErrorContains(t, c.Do(ctx, at, "fail", greeting{}, nil), "the disk is gone")
	require.ErrorIs(t, c.Do(ctx, at, "wait", greeting{}, nil), ErrUnavailable, "the deadline of the server")
	require.ErrorContains(t, c.Do(ctx, at, "echo", []int{1}, nil), "400")
	require.ErrorContains(t, c.Do(ctx, at, "echo", greeting{strings.Repeat("x", DefaultMaxBody)}, nil), "413")
	require.ErrorIs(t, newClient(t, ClientOptions{ClusterID: "c2"}).Do(ctx, at, "echo", greeting{}, nil), ErrOtherCluster)
	require.ErrorIs(t, c.Do(ctx, "http://127.0.0.1:1", "echo", greeting{}, nil), ErrUnavailable)
	for _, bad := range []string{"", "ftp://x", "127.0.0.1:1", "http://"} {
		require.ErrorIs(t, c.Do(ctx, bad, "echo", greeting{}, nil), ErrUnavailable)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.Do(short, at, "echo", greeting{}, nil), ErrUnavailable)
	resp, err := http.Get(at + pathPrefix + "echo")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestTooManyCallsAreRefused(t *testing.T) {
	at := serve(t, nil, Options{MaxCalls: 1})
	c := newClient(t, ClientOptions{})
	done := make(chan error, 20)
	for range cap(done) {
		go func() { done <- c.Do(t.Context(), at, "wait", greeting{}, nil) }()
	}
	full := 0
	for range cap(done) {
		err := <-done
		require.ErrorIs(t, err, ErrUnavailable)
		if strings.Contains(err.Error(), "too many calls") {
			full++
		}
	}
	require.Positive(t, full)
}

func TestSecret(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	clock := func() time.Time { return now }
	at := serve(t, nil, Options{Secret: []byte("s"), Now: clock})
	do := func(o ClientOptions) error {
		return newClient(t, o).Do(t.Context(), at, "echo", greeting{"x"}, nil)
	}
	require.NoError(t, do(ClientOptions{Secret: []byte("s"), Now: clock}))
	require.ErrorIs(t, do(ClientOptions{Now: clock}), ErrDenied)
	require.ErrorIs(t, do(ClientOptions{Secret: []byte("t"), Now: clock}), ErrDenied)
	require.ErrorIs(t, do(ClientOptions{Secret: []byte("s"), Now: func() time.Time { return now.Add(skew + time.Second) }}), ErrDenied)
	require.NoError(t, do(ClientOptions{Secret: []byte("s"), Now: func() time.Time { return now.Add(-skew + time.Second) }}))
	// No part of what is proven can be exchanged for another.
	require.NotEqual(t, proof(nil, "a", "b", "1", []byte("x")), proof(nil, "ab", "", "1", []byte("x")))
	require.NotEqual(t, proof(nil, "a", "b", "1", []byte("x")), proof(nil, "a", "b", "", []byte("1x")))
}

func TestLoads(t *testing.T) {
	topic := frame.TopicID{1}
	id := func(p int32) frame.PartitionID { return frame.PartitionID{Topic: topic, Partition: p} }
	var m Meter
	now := time.UnixMilli(0)
	counters := map[int32][2]int64{0: {0, 0}, 1: {500, 900}}
	measure := func() []TopicLoad {
		return m.Measure(now, func(yield func(Counted) bool) {
			for _, p := range []int32{0, 1, 2} {
				if c, ok := counters[p]; ok && !yield(Counted{id(p), c[0], c[1]}) {
					return
				}
			}
		})
	}
	require.Empty(t, measure(), "one look gives no rate")
	// A steady 1,000 bytes a second in, twice that out, is seen by half after a half-life, and nearly whole after ten.
	step := func(n int) (last []TopicLoad) {
		for range n {
			now = now.Add(5 * time.Second)
			counters[0] = [2]int64{counters[0][0] + 5000, counters[0][1] + 10000}
			last = measure()
		}
		return last
	}
	got := step(12)
	require.Len(t, got, 1)
	require.Equal(t, []PartitionLoad{{0, 500, 1000}}, got[0].Loads)
	got = step(120)
	require.InDelta(t, 1000, got[0].Loads[0][1], 2)
	require.InDelta(t, 2000, got[0].Loads[0][2], 4)
	// A counter that begins anew is no flood; a partition that went is forgotten.
	counters[0] = [2]int64{0, 0}
	now = now.Add(5 * time.Second)
	require.Less(t, measure()[0].Loads[0][1], 1000.0)
	delete(counters, 0)
	now = now.Add(5 * time.Second)
	require.Empty(t, measure())
	require.NotContains(t, m.last, id(0))

	report := &LoadReport{Broker: 1, Incarnation: "r", Topics: got}
	require.NoError(t, report.Check())
	var b LoadBook
	b.Put(report, now)
	loads := map[frame.PartitionID][2]float64{}
	for id, l := range b.All(now) {
		loads[id] = l
	}
	require.InDelta(t, 1000, loads[id(0)][0], 2)
	for range b.All(now.Add(ReportLife + time.Second)) {
		t.Fatal("an old report counts")
	}
	for range b.All(now) {
		t.Fatal("an old report was kept")
	}
	for broker := range int32(maxReporters + 10) {
		b.Put(&LoadReport{Broker: broker, Incarnation: "r"}, now)
	}
	require.Len(t, b.reports, maxReporters)
	for _, bad := range []LoadReport{{Broker: -1, Incarnation: "r"}, {Broker: 1}, {Incarnation: "r", Topics: []TopicLoad{{Loads: []PartitionLoad{{-1, 0, 0}}}}},
		{Incarnation: "r", Topics: []TopicLoad{{Loads: []PartitionLoad{{0.5, 0, 0}}}}}, {Incarnation: "r", Topics: []TopicLoad{{Loads: []PartitionLoad{{0, -1, 0}}}}}} {
		require.Error(t, bad.Check(), "%v", bad)
	}
}
