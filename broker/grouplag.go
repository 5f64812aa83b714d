package broker

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/group"
)

const (
	lagEvery  = 10 * time.Second       // how old figures may be before they are made again
	lagWait   = 300 * time.Millisecond // how long whoever asks waits for new ones
	lagBudget = 1024                   // offsets that are copied under a shard's lock at one time
	// lagNameBytes is the longest group name that is shown: names come from clients, and may have 32 KiB.
	lagNameBytes = 255
)

// GroupLag says how far groups are behind in topics, at the time At.
type GroupLag struct {
	Pairs []PairLag // by group and topic, at most as many as the setting tierbroker.group.lag.max.series allows
	At    time.Time // zero when nothing is known yet

	Unlisted        int   // pairs that are not in Pairs: there are too many, or the group's name can't be shown
	UnlistedRecords int64 // how far those are behind
	Unknown         int   // partitions with a commit that this broker doesn't own: not counted anywhere
}

// PairLag is how far a group is behind in a topic, summed over the partitions in which it has committed. All are numbers of offsets.
type PairLag struct {
	Group, Topic string
	Records      int64 // between the commit, or the start if that is later, and the high watermark
	Cold         int64 // of those: no local copy, reading them asks the bucket
	Lost         int64 // between the commit and the start: removed before they were consumed
}

// lagKeeper makes the figures off the path of whoever asks for them, a part at a time.
type lagKeeper struct {
	g      *coordinator
	every  time.Duration
	budget int

	wake   chan struct{}
	latest atomic.Pointer[GroupLag]

	mu      sync.Mutex
	renewed chan struct{} // closed when the round that was asked for has ended
	tours   uint64
}

func newLagKeeper(g *coordinator) *lagKeeper {
	l := &lagKeeper{g: g, every: lagEvery, budget: lagBudget, wake: make(chan struct{}, 1), renewed: make(chan struct{})}
	l.latest.Store(&GroupLag{})
	return l
}

// loop makes figures when they are asked for, until the broker closes.
func (l *lagKeeper) loop() {
	for {
		select {
		case <-l.wake:
		case <-l.g.b.ctx.Done():
			return
		}
		l.latest.Store(l.round())
		l.mu.Lock()
		close(l.renewed)
		l.renewed = make(chan struct{})
		l.mu.Unlock()
	}
}

// GroupLag returns the latest figures. When they are older than ten seconds it asks for new ones, and waits a moment for
// them; nothing is computed while nobody asks. Its time is bounded, whatever the number of groups.
func (b *Broker) GroupLag() GroupLag {
	l := b.groups.lag
	if last := l.latest.Load(); !last.At.IsZero() && b.o.Now().Sub(last.At) < l.every {
		return *last
	}
	l.mu.Lock()
	renewed := l.renewed
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	wait := time.NewTimer(lagWait)
	defer wait.Stop()
	select {
	case <-renewed:
	case <-wait.C:
	case <-b.ctx.Done():
	}
	return *l.latest.Load()
}

// round goes through all shards. It holds a shard's lock for one part at a time.
func (l *lagKeeper) round() *GroupLag {
	b := l.g.b
	img := b.o.Cluster.Image()
	s := lagSum{b: b, img: img, most: int(setting(img.BrokerDefaults(), cluster.GroupLagSeries)), out: &GroupLag{At: b.o.Now()}}
	j := l.g.current()
	if j == nil || s.most == 0 {
		return s.out
	}
	l.tours++
	part := make([]group.Committed, 0, 2*l.budget)
	for shard := range j.Shards() {
		tour := group.Tour{Number: l.tours}
		for more := true; more && b.ctx.Err() == nil; {
			part = part[:0]
			// A shard that is loading has no groups to show.
			if err := j.Look(shard, func(x *groupShard) {
				more = x.m.Visit(&tour, l.budget, func(c group.Committed) { part = append(part, c) })
			}); err != nil {
				break
			}
			s.add(part)
		}
		s.flush()
	}
	s.prune(s.most)
	return s.out
}

// lagSum adds offsets up to pairs, and keeps as many pairs as may be shown.
type lagSum struct {
	b    *Broker
	img  *cluster.Image
	most int
	out  *GroupLag
	open map[string]*PairLag // of the group under way, by topic
	name string              // of the group under way
}

// add takes offsets; those of a group, and of a topic within it, come together.
func (s *lagSum) add(part []group.Committed) {
	for i := range part {
		c := &part[i]
		if c.Group != s.name {
			s.flush()
			s.name = c.Group
		}
		t := s.img.TopicByName(c.Topic)
		if t == nil || t.Deleting || c.TopicID != ([16]byte{}) && c.TopicID != [16]byte(t.ID) || c.At < 0 {
			continue // as if it weren't there; it goes with the topic
		}
		p := s.b.o.Partitions.Get(frame.PartitionID{Topic: t.ID, Partition: c.Partition})
		if p == nil {
			s.out.Unknown++
			continue
		}
		o := p.Offsets()
		pair := s.open[c.Topic]
		if pair == nil {
			if s.open == nil {
				s.open = map[string]*PairLag{}
			}
			pair = &PairLag{Group: c.Group, Topic: c.Topic}
			s.open[c.Topic] = pair
		}
		from := max(c.At, o.Start)
		behind := max(o.Durable-from, 0)
		pair.Records += behind
		pair.Cold += min(max(o.LocalStart-from, 0), behind)
		pair.Lost += max(o.Start-c.At, 0)
	}
}

// flush ends the group under way.
func (s *lagSum) flush() {
	if s.most == 0 {
		return
	}
	hide := len(s.name) > lagNameBytes || !utf8.ValidString(s.name)
	for _, pair := range s.open {
		if hide {
			s.drop(pair)
			continue
		}
		s.out.Pairs = append(s.out.Pairs, *pair)
	}
	clear(s.open)
	s.name = ""
	if len(s.out.Pairs) >= 2*s.most+1024 {
		s.prune(s.most)
	}
}

func (s *lagSum) drop(p *PairLag) {
	s.out.Unlisted++
	s.out.UnlistedRecords += p.Records
}

// prune keeps the first pairs by name, so that the choice is the same each time.
func (s *lagSum) prune(most int) {
	slices.SortFunc(s.out.Pairs, func(x, y PairLag) int {
		return cmp.Or(strings.Compare(x.Group, y.Group), strings.Compare(x.Topic, y.Topic))
	})
	// A shard that was loaded again meanwhile may have been visited twice.
	s.out.Pairs = slices.CompactFunc(s.out.Pairs, func(x, y PairLag) bool { return x.Group == y.Group && x.Topic == y.Topic })
	if len(s.out.Pairs) <= most {
		return
	}
	for i := range s.out.Pairs[most:] {
		s.drop(&s.out.Pairs[most+i])
	}
	clear(s.out.Pairs[most:])
	s.out.Pairs = s.out.Pairs[:most]
}
