package broker

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/group"
	"github.com/tierbroker/tierbroker/journal"
	"github.com/tierbroker/tierbroker/kafka"
)

// groupShard is a group machine and the calls that wait for its replies. It is a journal.Machine: the journal guards it.
type groupShard struct {
	g     *coordinator
	m     *group.Machine
	next  group.Token
	calls map[group.Token]chan<- groupResult
}

// groupResult ends a call.
type groupResult struct {
	resp kmsg.Response
	err  error
}

func (g *coordinator) newShard(int32) *groupShard {
	return &groupShard{g: g, m: group.New(*g.options.Load()), calls: map[group.Token]chan<- groupResult{}}
}

// Apply implements journal.Machine.
func (s *groupShard) Apply(r journal.Record) { s.m.Apply(group.Record(r)) }

// Loaded implements journal.Machine. Offsets of topics that went while nobody held this shard go now.
func (s *groupShard) Loaded(now time.Time) journal.Step {
	view := s.g.topics.Load()
	s.m.SetTopics(view)
	s.m.SetOptions(now, *s.g.options.Load()) // they may have changed since the shard began to load
	st := s.m.Loaded(now)
	if gone := view.gone(); len(gone) > 0 {
		more := s.m.TopicsDeleted(now, gone)
		st.Records, st.Replies = append(st.Records, more.Records...), append(st.Replies, more.Replies...)
	}
	return s.step(st)
}

// Snapshot implements journal.Machine.
func (s *groupShard) Snapshot(emit func(journal.Record)) {
	for r := range s.m.Snapshot() {
		emit(journal.Record(r))
	}
}

// Deadline implements journal.Machine.
func (s *groupShard) Deadline() (time.Time, bool) { return s.m.NextDeadline() }

// Expire implements journal.Machine.
func (s *groupShard) Expire(now time.Time) journal.Step { return s.step(s.m.Tick(now)) }

// Discard implements journal.Machine.
func (s *groupShard) Discard(err error) {
	s.g.pastMu.Lock()
	s.g.past.count(s.m.Stats())
	s.g.pastMu.Unlock()
	for t, c := range s.calls {
		delete(s.calls, t)
		c <- groupResult{err: err}
	}
}

// begin notes a call; its result comes exactly once, so a channel with room for one never blocks.
func (s *groupShard) begin(c chan<- groupResult) group.Token {
	s.next++
	s.calls[s.next] = c
	return s.next
}

// step turns what the machine did into what the journal does.
func (s *groupShard) step(st group.Step) journal.Step {
	var out journal.Step
	if len(st.Records) > 0 {
		out.Records = make([]journal.Record, len(st.Records))
		for i := range st.Records {
			out.Records[i] = journal.Record(st.Records[i])
		}
	}
	if len(st.Replies) == 0 {
		return out
	}
	waiting := make([]chan<- groupResult, len(st.Replies))
	for i := range st.Replies {
		t := st.Replies[i].Token
		waiting[i] = s.calls[t]
		delete(s.calls, t)
	}
	out.Done = func(err error) {
		for i, c := range waiting {
			if c == nil {
				continue // nobody waits any more
			}
			if err != nil {
				c <- groupResult{err: err}
				continue
			}
			c <- groupResult{resp: st.Replies[i].Response}
		}
	}
	return out
}

// askShard has a shard's machine answer a request. It returns when the answer is durable.
func (b *Broker) askShard(ctx context.Context, c *call, shard int32, req kmsg.Request) (kmsg.Response, error) {
	j := b.groups.current()
	if j == nil {
		return nil, kerr.NotCoordinator
	}
	if err := b.leaseDoubt(); err != nil && !aliveOnly(req) {
		return nil, err
	}
	who := group.Client{ID: c.ClientID, Host: "/" + host(c)}
	result := make(chan groupResult, 1)
	var token group.Token
	err := j.Do(shard, func(s *groupShard, now time.Time) journal.Step {
		token = s.begin(result)
		return s.step(s.m.Handle(now, who, token, req))
	})
	if err != nil {
		return nil, err
	}
	if c.taken != nil {
		// It may wait for minutes. What the group keeps of it counts there; others need the budget.
		c.taken()
		c.Body = nil
		c.finish()
	}
	select {
	case r := <-result:
		if err := b.leaseDoubt(); err != nil {
			return nil, err
		}
		return r.resp, r.err
	case <-ctx.Done():
	}
	err = j.Do(shard, func(s *groupShard, _ time.Time) journal.Step {
		if s.calls[token] == (chan<- groupResult)(result) {
			delete(s.calls, token)
			s.m.Cancel(token)
		}
		return journal.Step{}
	})
	if err != nil {
		return nil, err // the machine is gone, and with it what waited
	}
	return nil, context.Cause(ctx)
}

// ask has a group's coordinator answer a request, within the time that any answer may take.
func (b *Broker) ask(ctx context.Context, c *call, name string, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	return b.askFor(ctx, c, name, req)
}

// askFor is ask for calls that may wait for other members.
func (b *Broker) askFor(ctx context.Context, c *call, name string, req kmsg.Request) (kmsg.Response, error) {
	j := b.groups.current()
	if j == nil {
		return nil, kerr.NotCoordinator
	}
	req.SetVersion(c.Version)
	return b.askShard(ctx, c, shardOf(name, j.Shards()), req)
}

// owned makes the request's bytes its own: they are used when its buffer has gone.
func owned(h handler) handler {
	return func(b *Broker, ctx context.Context, c *call) kafka.Pending {
		c.Body = slices.Clone(c.Body)
		return h(b, ctx, c)
	}
}

func host(c *call) string {
	if c.Conn == nil || c.Conn.RemoteAddr() == nil {
		return ""
	}
	addr := c.Conn.RemoteAddr().String()
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[:i]
		}
	}
	return addr
}

// topicView is an image as the group machine sees it.
type topicView struct{ img *cluster.Image }

func groupTopic(t *cluster.Topic) group.Topic {
	return group.Topic{ID: t.ID, Name: t.Name, Partitions: t.Partitions}
}

// ByName implements group.Topics.
func (v *topicView) ByName(name string) (group.Topic, bool) {
	if t := v.img.TopicByName(name); t != nil && !t.Deleting {
		return groupTopic(t), true
	}
	return group.Topic{}, false
}

// ByID implements group.Topics.
func (v *topicView) ByID(id [16]byte) (group.Topic, bool) {
	if t := v.img.TopicByID(frame.TopicID(id)); t != nil && !t.Deleting {
		return groupTopic(t), true
	}
	return group.Topic{}, false
}

// All implements group.Topics.
func (v *topicView) All() iter.Seq[group.Topic] {
	return func(yield func(group.Topic) bool) {
		for _, t := range v.img.Topics() {
			if !t.Deleting && !yield(groupTopic(t)) {
				return
			}
		}
	}
}

// gone returns the names of deleted topics that no new topic has taken.
func (v *topicView) gone() []string {
	var names []string
	for _, t := range v.img.Topics() {
		if t.Deleting {
			names = append(names, t.Name)
		}
	}
	for _, t := range v.img.Deleted() {
		if v.img.TopicByName(t.Name) == nil {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
