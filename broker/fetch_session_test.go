package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

func sessionReq(t *cluster.Topic, id, epoch int32, ats ...at) *kmsg.FetchRequest {
	req := fetchReq(t, ats...)
	req.SessionID, req.SessionEpoch = id, epoch
	return req
}

func TestFetchSession(t *testing.T) {
	for _, v := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) {
			w := newWorld(t)
			topic := w.topic("t", 3)
			other := w.topic("u", 1)
			w.part(topic, 0).write(records(1, "a"))

			r := ask[*kmsg.FetchResponse](w, sessionReq(topic, 0, 0, at{0, 0}, at{1, 0}, at{2, 0}), v)
			id := r.SessionID
			require.Positive(t, id)
			require.Len(t, fetched(r), 3, "the first answer has all partitions")
			require.Equal(t, []string{"a"}, values(t, fetched(r)[0]))

			// Nothing changed but the offset: nothing to tell.
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 1, at{0, 1}), v)
			require.Zero(t, r.ErrorCode)
			require.Equal(t, id, r.SessionID)
			require.Empty(t, fetched(r))

			// Only what changed is told, also for partitions that the request doesn't name.
			w.part(topic, 2).write(records(1, "b"))
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 2), v)
			require.Len(t, fetched(r), 1)
			require.Equal(t, []string{"b"}, values(t, fetched(r)[2]))
			// What the client hasn't acknowledged by a new offset comes again.
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 3), v)
			require.Equal(t, []string{"b"}, values(t, fetched(r)[2]))
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 4, at{2, 1}), v)
			require.Empty(t, fetched(r))

			// A new partition is told once, also when it is empty.
			r = ask[*kmsg.FetchResponse](w, sessionReq(other, id, 5, at{0, 0}), v)
			require.Len(t, fetched(r), 1)
			r = ask[*kmsg.FetchResponse](w, sessionReq(other, id, 6), v)
			require.Empty(t, fetched(r))

			// A forgotten one is silent.
			req := sessionReq(topic, id, 7)
			f := kmsg.NewFetchRequestForgottenTopic()
			f.Topic, f.TopicID, f.Partitions = topic.Name, topic.ID, []int32{1, 2, 77}
			req.ForgottenTopics = append(req.ForgottenTopics, f)
			require.Empty(t, fetched(ask[*kmsg.FetchResponse](w, req, v)))
			w.part(topic, 1).write(records(1, "c"))
			require.Empty(t, fetched(ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 8), v)))
			// Added again it is looked at again.
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 9, at{1, 0}), v)
			require.Equal(t, []string{"c"}, values(t, fetched(r)[1]))

			// An error is told every time.
			for i := range int32(2) {
				r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 10+i, at{0, 99}), v)
				require.Equal(t, kerr.OffsetOutOfRange.Code, fetched(r)[0].ErrorCode)
			}
			// A start offset that rises is told.
			w.part(topic, 1).set(func() { w.parts.m[frame.PartitionID{Topic: topic.ID, Partition: 1}].start = 1 })
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 12, at{0, 1}, at{1, 1}), v)
			require.EqualValues(t, 1, fetched(r)[1].LogStartOffset)

			// Wrong epoch, unknown session, end of the session.
			require.Equal(t, kerr.InvalidFetchSessionEpoch.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 5), v).ErrorCode)
			require.Equal(t, kerr.FetchSessionIDNotFound.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, id^1, 13), v).ErrorCode)
			if v >= 13 {
				require.Equal(t, kerr.FetchSessionTopicIDError.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 13), 12).ErrorCode)
			} else {
				require.Equal(t, kerr.FetchSessionTopicIDError.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 13), 13).ErrorCode)
			}
			r = ask[*kmsg.FetchResponse](w, sessionReq(topic, id, -1, at{0, 0}), v)
			require.Zero(t, r.SessionID)
			require.Equal(t, []string{"a"}, values(t, fetched(r)[0]))
			require.Equal(t, kerr.FetchSessionIDNotFound.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, id, 13), v).ErrorCode)
			require.Zero(t, w.parts.watches(), "the session's watches are gone")
			w.noLeaks()
		})
	}
}

func TestFetchSessionWaits(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 50)
	ats := make([]at, 50)
	for i := range ats {
		ats[i] = at{part: int32(i)}
	}
	id := ask[*kmsg.FetchResponse](w, sessionReq(topic, 0, 0, ats...), 13).SessionID
	require.Equal(t, 50, w.parts.watches())
	reads := func() (n int64) {
		for i := range int32(50) {
			n += w.part(topic, i).reads.Load()
		}
		return n
	}
	before := reads()
	for e := int32(1); e <= 20; e++ {
		req := sessionReq(topic, id, e)
		req.MaxWaitMillis = 60000
		p := w.start(req, 13)
		got := make(chan *kmsg.FetchResponse, 1)
		go func() { got <- w.finish(req, p).(*kmsg.FetchResponse) }()
		w.part(topic, e).write(records(1, "x"))
		m := fetched(<-got)
		require.Contains(t, m, e)
		for part := range m {
			next := sessionReq(topic, id, e+1, at{part, 1})
			_ = next
		}
		// The client reads on: the partition is idle again.
		s := w.b.sessions.get(id, time.Now())
		require.NoError(t, s.acquire(w.ctx))
		for _, p := range s.parts {
			if p.key.index == e {
				p.offset = 1
			}
		}
		s.release()
	}
	require.LessOrEqual(t, reads()-before, int64(40), "only partitions that changed are read")
	require.Equal(t, 50, w.parts.watches())
	w.b.sessions.remove(id)
	require.Zero(t, w.parts.watches())
	w.noLeaks()
}

// TestFetchSessionFairness: with little room, busy partitions take turns.
func TestFetchSessionFairness(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 4)
	for i := range int32(4) {
		for range 8 {
			w.part(topic, i).write(records(1, "aaaa"))
		}
	}
	one := int32(len(records(1, "aaaa")))
	offset := [4]int64{}
	req := sessionReq(topic, 0, 0, at{0, 0}, at{1, 0}, at{2, 0}, at{3, 0})
	id, epoch := int32(0), int32(0)
	for range 8 {
		req.MaxBytes = 2 * one
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = one
		}
		r := ask[*kmsg.FetchResponse](w, req, 12)
		id, epoch = r.SessionID, epoch+1
		var next []at
		for i, p := range fetched(r) {
			n := len(values(t, p))
			offset[i] += int64(n)
			if n > 0 {
				next = append(next, at{i, offset[i]})
			}
		}
		require.Len(t, next, 2)
		req = sessionReq(topic, id, epoch, next...)
	}
	require.Equal(t, [4]int64{4, 4, 4, 4}, offset)
}

func TestFetchSessionCap(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(o *Options) {
		o.FetchSessions = 2
		o.Now = func() time.Time { return now }
	})
	topic := w.topic("t", 1)
	open := func() int32 {
		r := ask[*kmsg.FetchResponse](w, sessionReq(topic, 0, 0, at{0, 0}), 12)
		require.Zero(t, r.ErrorCode)
		require.Len(t, fetched(r), 1)
		return r.SessionID
	}
	a, b := open(), open()
	require.NotZero(t, a)
	require.NotZero(t, b)
	require.Zero(t, open(), "sessions in use aren't pushed out")
	now = now.Add(time.Minute)
	require.Zero(t, ask[*kmsg.FetchResponse](w, sessionReq(topic, b, 1), 12).ErrorCode)
	now = now.Add(90 * time.Second)
	require.NotZero(t, open(), "the idle one makes room")
	require.Equal(t, kerr.FetchSessionIDNotFound.Code, ask[*kmsg.FetchResponse](w, sessionReq(topic, a, 1), 12).ErrorCode)
	require.Zero(t, ask[*kmsg.FetchResponse](w, sessionReq(topic, b, 2), 12).ErrorCode)
	// A new session in place of an old one.
	r := ask[*kmsg.FetchResponse](w, sessionReq(topic, b, 0, at{0, 0}), 12)
	require.NotZero(t, r.SessionID)
	require.NotEqual(t, b, r.SessionID)
	n, parts, evicted := w.b.sessions.stats()
	require.Equal(t, 2, n)
	require.Equal(t, 2, parts)
	require.EqualValues(t, 1, evicted)
	none := newWorld(t, func(o *Options) { o.FetchSessions = -1 })
	nt := none.topic("t", 1)
	require.Zero(t, ask[*kmsg.FetchResponse](none, sessionReq(nt, 0, 0, at{0, 0}), 12).SessionID)
}
