package group

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Machine is all groups of one shard. It is not safe for concurrent use; doc.go has the rules of its owner.
type Machine struct {
	opts   Options
	groups map[string]*group
	list   []*group // the same, in the order in which a Tour can go through them bit by bit
	topics Topics
	// topicsVersion grows with SetTopics: a consumer group looks at its topics again when it lags behind.
	topicsVersion uint64
	base          time.Time // the zero of clock, set by the first call
	now           instant   // of the call under way
	timers        timers
	waiting       map[Token]*waiter
	patterns      map[string]matches
	step          Step
	arena         []byte   // the records of the step under way
	sweep         []string // groups that the expiry under way has to look at yet
	offsets       int      // committed offsets held
	memberBytes   int      // what members say of themselves, in all groups
	rebalances    uint64
	expired       uint64
	badRecords    uint64
}

// instant is the time of a call: mono for timers, milliseconds since Machine.base, and wall for records, Unix milliseconds.
type instant struct{ mono, wall int64 }

// New returns a machine without groups. It panics if o.NewID is nil: that is a fault of the program.
func New(o Options) *Machine {
	if o.NewID == nil {
		panic("group: Options.NewID is needed")
	}
	o.setDefaults()
	return &Machine{opts: o, groups: map[string]*group{}, topics: noTopics{}, waiting: map[Token]*waiter{}}
}

// SetTopics tells the machine the present topics; call it when a topic came, went or grew. Consumer groups take changes up
// with the next heartbeat of a member. With no topics ever set, no commit is checked against them.
func (m *Machine) SetTopics(t Topics) {
	m.topics = t
	m.topicsVersion++
}

// SetOptions takes new settings; o.NewID nil keeps the one there is. They hold from the next call on: members that are beyond
// a lowered limit stay, sessions end as they were agreed until the member's next sign of life. The next search for expired
// offsets comes after the new interval.
func (m *Machine) SetOptions(now time.Time, o Options) {
	if o.NewID == nil {
		o.NewID = m.opts.NewID
	}
	o.setDefaults()
	check := o.OffsetsRetentionCheck != m.opts.OffsetsRetentionCheck
	m.opts = o
	if expiry := (timerKey{kind: timerExpiry}); check && len(m.sweep) == 0 && m.timers.has(expiry) {
		m.begin(now)
		m.timers.set(m.now.mono+o.OffsetsRetentionCheck.Milliseconds(), expiry)
	}
}

// Loaded ends the replay: sessions of all members start now.
func (m *Machine) Loaded(now time.Time) Step {
	m.begin(now)
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		m.groups[id].loaded(m)
	}
	m.timers.set(m.now.mono+m.opts.OffsetsRetentionCheck.Milliseconds(), timerKey{kind: timerExpiry})
	return m.end()
}

// Handle answers a request, at once or later: see Token. It takes every request that Handles names, with an error reply
// of Kafka for whatever is wrong with it. It keeps no slice of req.
func (m *Machine) Handle(now time.Time, c Client, token Token, req kmsg.Request) Step {
	m.begin(now)
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		m.reply(token, m.offsetCommit(r))
	case *kmsg.OffsetFetchRequest:
		m.reply(token, m.offsetFetch(r))
	case *kmsg.OffsetDeleteRequest:
		m.reply(token, m.offsetDelete(r))
	case *kmsg.DeleteGroupsRequest:
		m.reply(token, m.deleteGroups(r))
	case *kmsg.ListGroupsRequest:
		m.reply(token, m.listGroups(r))
	case *kmsg.DescribeGroupsRequest:
		m.reply(token, m.describeGroups(r))
	case *kmsg.ConsumerGroupDescribeRequest:
		m.reply(token, m.consumerGroupDescribe(r))
	case *kmsg.JoinGroupRequest:
		m.joinGroup(c, token, r)
	case *kmsg.SyncGroupRequest:
		m.syncGroup(token, r)
	case *kmsg.HeartbeatRequest:
		m.reply(token, m.heartbeat(r))
	case *kmsg.LeaveGroupRequest:
		m.reply(token, m.leaveGroup(r))
	case *kmsg.ConsumerGroupHeartbeatRequest:
		m.reply(token, m.consumerGroupHeartbeat(c, r))
	default:
		panic(fmt.Sprintf("group: a request of key %d is not the group machine's", req.Key()))
	}
	return m.end()
}

// Handles tells whether Handle takes the request.
func Handles(req kmsg.Request) bool {
	switch req.(type) {
	case *kmsg.OffsetCommitRequest, *kmsg.OffsetFetchRequest, *kmsg.OffsetDeleteRequest, *kmsg.DeleteGroupsRequest,
		*kmsg.ListGroupsRequest, *kmsg.DescribeGroupsRequest, *kmsg.ConsumerGroupDescribeRequest, *kmsg.JoinGroupRequest,
		*kmsg.SyncGroupRequest, *kmsg.HeartbeatRequest, *kmsg.LeaveGroupRequest, *kmsg.ConsumerGroupHeartbeatRequest:
		return true
	}
	return false
}

// Cancel says that nobody waits for the token's reply any more; a token that doesn't wait is ignored.
func (m *Machine) Cancel(token Token) {
	delete(m.waiting, token)
}

// Tick does what is due: ends joins, expires sessions and offsets.
func (m *Machine) Tick(now time.Time) Step {
	m.begin(now)
	for range maxTicks {
		k, ok := m.timers.pop(m.now.mono)
		if !ok {
			break
		}
		m.fire(k)
		if k.kind == timerExpiry {
			break // it may be due at once again, and has its own bound
		}
	}
	return m.end()
}

// maxTicks bounds the work and the records of one Tick; the rest is due at once again.
const maxTicks = 1000

// NextDeadline is when Tick has something to do; false if never, as before Loaded.
func (m *Machine) NextDeadline() (time.Time, bool) {
	at, ok := m.timers.next()
	if !ok {
		return time.Time{}, false
	}
	return m.base.Add(time.Duration(at) * time.Millisecond), true
}

// TopicsDeleted drops the committed offsets of topics that are gone, in all groups.
func (m *Machine) TopicsDeleted(now time.Time, names []string) Step {
	m.begin(now)
	m.dropTopics(names)
	return m.end()
}

// Snapshot yields the records that rebuild the durable state, in an order that depends on that state alone. The machine
// must not be used before the loop has ended; a record's slices are the caller's to keep.
func (m *Machine) Snapshot() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, id := range slices.Sorted(maps.Keys(m.groups)) {
			if !m.groups[id].snapshot(yield) {
				return
			}
		}
	}
}

// Stats counts the present state. It costs O(groups).
func (m *Machine) Stats() Stats {
	s := Stats{Groups: map[State]int{}, Offsets: m.offsets, Bytes: m.memberBytes, Rebalances: m.rebalances, Expired: m.expired, BadRecords: m.badRecords}
	for _, g := range m.groups {
		s.Groups[g.state()]++
		s.Members += g.memberCount()
	}
	return s
}

func (m *Machine) begin(now time.Time) {
	if m.base.IsZero() {
		m.base = now
	}
	// A clock without a monotonic part may go back: timers must not.
	mono := max(now.Sub(m.base).Milliseconds(), m.now.mono)
	m.now = instant{mono: mono, wall: now.UnixMilli()}
}

func (m *Machine) end() Step {
	s := m.step
	m.step, m.arena = Step{}, nil
	return s
}

func (m *Machine) reply(t Token, r kmsg.Response) {
	m.step.Replies = append(m.step.Replies, Reply{t, r})
}

// wait makes the token's call one that is answered later.
func (m *Machine) wait(token Token, version int16) *waiter {
	w := &waiter{token, version}
	m.waiting[token] = w
	return w
}

// answer replies to a call that waits; nil and calls that were cancelled are fine.
func (m *Machine) answer(w *waiter, r kmsg.Response) {
	if w == nil || m.waiting[w.token] != w {
		return
	}
	delete(m.waiting, w.token)
	r.SetVersion(w.version)
	m.reply(w.token, r)
}

// emit applies a record and adds it to the step.
func (m *Machine) emit(r Record) {
	m.Apply(r)
	m.step.Records = append(m.step.Records, r)
}

// fire does what a timer is for.
func (m *Machine) fire(k timerKey) {
	g := m.groups[k.group]
	switch {
	case k.kind == timerExpiry:
		m.expire()
	case g == nil:
	case g.consumer != nil:
		m.fireConsumer(g, k)
	case g.classic != nil:
		g.classic.fire(m, k)
	}
}

func code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
