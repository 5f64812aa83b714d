package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// sessionClient is a consumer that knows of its partitions only what a session tells it.
type sessionClient struct {
	w     *world
	topic *cluster.Topic
	id    int32
	epoch int32
	want  map[int32]int64 // offsets it fetches from
	said  map[int32]int64 // offsets as last sent
	high  map[int32]int64
	start map[int32]int64
}

// fetch sends what changed since the last time and takes the answer.
func (c *sessionClient) fetch(t require.TestingT, forget ...int32) map[int32]*kmsg.FetchResponseTopicPartition {
	var ats []at
	for p, o := range c.want {
		if s, ok := c.said[p]; !ok || s != o || c.epoch == 0 {
			ats = append(ats, at{p, o})
			c.said[p] = o
		}
	}
	req := sessionReq(c.topic, c.id, c.epoch, ats...)
	for _, p := range forget {
		req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{TopicID: c.topic.ID, Partitions: []int32{p}})
	}
	r := ask[*kmsg.FetchResponse](c.w, req, 13)
	require.Zero(t, r.ErrorCode)
	c.id, c.epoch = r.SessionID, c.epoch+1
	m := fetched(r)
	for i, p := range m {
		require.Contains(t, c.want, i, "a partition that isn't in the session")
		c.high[i], c.start[i] = p.HighWatermark, p.LogStartOffset
	}
	return m
}

// check holds what the client knows against the partitions, and takes the records. Those that are only in the bucket may
// come later: a fetch that has something else to tell waits for them only as long as a read from memory takes.
func (c *sessionClient) check(t require.TestingT, m map[int32]*kmsg.FetchResponseTopicPartition) {
	for i, offset := range c.want {
		p := c.part(i)
		a, o := m[i], p.Offsets()
		switch {
		case p.CheckEpoch(-1) != nil:
			require.NotNil(t, a)
			require.Equal(t, kerr.NotLeaderForPartition.Code, a.ErrorCode)
		case offset < o.Start:
			require.NotNil(t, a)
			require.Equal(t, kerr.OffsetOutOfRange.Code, a.ErrorCode)
			c.want[i] = o.Start
		default:
			require.Equal(t, o.Durable, c.high[i], "partition %d", i)
			require.Equal(t, o.Start, c.start[i], "partition %d", i)
			n := int64(0)
			if a != nil {
				n = int64(len(values(c.w.t, a)))
			}
			if offset >= o.LocalStart && offset < o.Durable {
				require.Positive(t, n, "partition %d", i)
			}
			c.want[i] += n
			require.LessOrEqual(t, c.want[i], o.Durable)
		}
	}
}

// drain finds all partitions again and fetches until every record has come.
func (c *sessionClient) drain(t require.TestingT) {
	for i := range c.want {
		p := c.part(i)
		p.set(func() { p.closed = false })
	}
	behind := func() bool {
		for i, offset := range c.want {
			if offset < c.part(i).Offsets().Durable {
				return true
			}
		}
		return false
	}
	for behind() {
		require.NoError(t, c.w.ctx.Err(), "records that don't come")
		c.check(t, c.fetch(t))
	}
}

func (c *sessionClient) part(i int32) *fakePart {
	return c.w.parts.get(frame.PartitionID{Topic: c.topic.ID, Partition: i})
}

// end closes the session.
func (c *sessionClient) end() { c.w.b.sessions.remove(c.id) }

// TestFetchSessionModel: whatever happens to the partitions, what the client knows after a fetch is true, and every
// record reaches it.
func TestFetchSessionModel(t *testing.T) {
	w := newWorld(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		topic := w.topic(fmt.Sprint("t", run), 6)
		c := &sessionClient{w: w, topic: topic, want: map[int32]int64{}, said: map[int32]int64{}, high: map[int32]int64{}, start: map[int32]int64{}}
		defer c.end() // also after a failure: others would count its watches, and rapid report those
		part := func() (int32, *fakePart) {
			i := rapid.Int32Range(0, 5).Draw(rt, "partition")
			return i, c.part(i)
		}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			i, p := part()
			var forget []int32
			switch rapid.IntRange(0, 7).Draw(rt, "step") {
			case 0, 1:
				if p.CheckEpoch(-1) == nil {
					p.write(records(1, "v"))
				}
			case 2:
				if _, ok := c.want[i]; !ok {
					c.want[i] = p.Offsets().Start
				}
			case 3:
				if _, ok := c.want[i]; ok && c.epoch > 0 {
					forget = append(forget, i)
					delete(c.want, i)
					delete(c.said, i)
				}
			case 4:
				p.set(func() { p.start = min(p.start+1, p.durable) })
			case 5:
				p.set(func() { p.local = p.durable })
			case 6: // lost and found again, as when a partition moves
				p.set(func() { p.closed = !p.closed })
			case 7:
				p.set(func() { p.epoch++ })
			}
			c.check(rt, c.fetch(rt, forget...))
		}
		c.drain(rt)
		c.end()
		require.Zero(rt, w.parts.watches())
		// A read from the bucket that was given up gives its batches back when it is done.
		require.Eventually(rt, func() bool { return w.parts.leaks() == 0 }, 20*time.Second, time.Millisecond)
	})
}
