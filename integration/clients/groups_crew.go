package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

const (
	memberSession = 12 * time.Second // of members that say it themselves: a busy machine takes its time to start a JVM
	settleLimit   = 75 * time.Second
	trafficPause  = 8 * time.Millisecond // between two records
)

// crew is a group with its members, the traffic it reads, and everything that was seen.
type crew struct {
	group, topic string
	env          []string
	cl           *kgo.Client
	cancel       context.CancelFunc // ends traffic and watch
	background   errgroup.Group
	living       []*member

	mu     sync.Mutex
	events []event
	owned  map[string]map[int32]bool // as it arrives; judge is the exact one
	ends   map[int32]int64
	safe   map[int32]int64
	failed error // of the traffic
	moved  chan struct{}
}

// newCrew creates the topic and lets the traffic begin.
func newCrew(ctx context.Context, s *suite, bootstrap, name string) (*crew, error) {
	c := &crew{
		group: s.run + "-" + name, topic: s.run + "-group-" + name, owned: map[string]map[int32]bool{}, ends: map[int32]int64{},
		safe: map[int32]int64{}, moved: make(chan struct{}, 1),
	}
	c.env = []string{
		"TIERBROKER_BOOTSTRAP=" + bootstrap, "MEMBER_TOPIC=" + c.topic, "MEMBER_GROUP=" + c.group,
		"MEMBER_SESSION_MS=" + strconv.FormatInt(memberSession.Milliseconds(), 10),
	}
	if err := createTopics(ctx, bootstrap, groupPartitions, c.topic); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(c.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	c.cl = cl
	ctx, c.cancel = context.WithCancel(ctx)
	c.background.Go(func() error { return c.traffic(ctx) })
	return c, nil
}

// traffic produces to all partitions in turn until ctx ends.
func (c *crew) traffic(ctx context.Context) error {
	tick := time.NewTicker(trafficPause)
	defer tick.Stop()
	for i := int32(0); ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			return c.cl.Flush(flush)
		}
		r := &kgo.Record{Partition: i % groupPartitions, Value: strconv.AppendInt(nil, int64(i), 10)}
		c.cl.Produce(context.WithoutCancel(ctx), r, func(r *kgo.Record, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.failed = err
				return
			}
			c.ends[r.Partition] = max(c.ends[r.Partition], r.Offset+1)
		})
	}
}

// see takes an event, from a member or of the suite itself.
func (c *crew) see(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	switch e.What {
	case "assigned":
		if c.owned[e.who] == nil {
			c.owned[e.who] = map[int32]bool{}
		}
		for _, p := range e.Partitions {
			c.owned[e.who][p] = true
		}
	case "revoked", "lost":
		for _, p := range e.Partitions {
			delete(c.owned[e.who], p)
		}
	case "gone":
		delete(c.owned, e.who)
	case "committed":
		c.safe = e.committed
	default:
		return
	}
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// look asks the broker for the group's offsets, for the judge.
func (c *crew) look(ctx context.Context) error {
	got, err := kadm.NewClient(c.cl).FetchOffsets(ctx, c.group)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		return err
	}
	e := event{What: "committed", Time: time.Now().UnixMicro(), committed: map[int32]int64{}}
	got.Each(func(o kadm.OffsetResponse) {
		if o.Topic == c.topic && o.At >= 0 {
			e.committed[o.Partition] = o.At
		}
	})
	c.see(e)
	return nil
}

// await waits until ok, and looks at what is committed meanwhile.
func (c *crew) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		done, failed := ok(), c.failed
		c.mu.Unlock()
		if failed != nil {
			return fmt.Errorf("produce: %w", failed)
		}
		if done {
			return nil
		}
		select {
		case <-c.moved:
		case <-tick.C:
			if err := c.look(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("fetch the group's offsets: %w", err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %s", what, settleLimit, c.state())
		}
	}
}

// state says who has what, and what the members noted last.
func (c *crew) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := ""
	for _, m := range c.living {
		out += fmt.Sprintf("%s has %d, ", m.id, len(c.owned[m.id]))
	}
	for i, notes := len(c.events)-1, 0; i >= 0 && notes < 5; i-- {
		if c.events[i].What == "note" {
			out += c.events[i].who + " noted: " + c.events[i].Text + ", "
			notes++
		}
	}
	return fmt.Sprintf("%scommitted %v of %v", out, c.safe, c.ends)
}

// settle waits until all partitions are owned by the living members, in even shares.
func (c *crew) settle(ctx context.Context) error {
	return c.await(ctx, "the assignment settles", func() bool {
		all := map[int32]bool{}
		for _, m := range c.living {
			n := len(c.owned[m.id])
			if n < groupPartitions/len(c.living) || n > (groupPartitions+len(c.living)-1)/len(c.living) {
				return false
			}
			maps.Copy(all, c.owned[m.id])
		}
		return len(all) == groupPartitions
	})
}

// finish ends the traffic, waits until everything is committed, lets all members leave, and judges.
func (c *crew) finish(ctx context.Context) (verdict, error) {
	c.cancel()
	if err := c.background.Wait(); err != nil {
		return verdict{}, fmt.Errorf("produce: %w", err)
	}
	if err := c.await(ctx, "everything is committed", func() bool { return maps.Equal(c.safe, c.ends) }); err != nil {
		return verdict{}, err
	}
	if err := c.leave(len(c.living)); err != nil {
		return verdict{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return judge(c.events, c.ends), nil
}

// close ends what is still there.
func (c *crew) close() {
	c.cancel()
	for _, m := range c.living {
		m.kill(c.see)
	}
	c.background.Wait() //nolint:errcheck // finish told
	c.cl.Close()
}

// join starts members.
func (c *crew) join(p memberProgram, protocol, instance string, n int) error {
	for range n {
		id := fmt.Sprintf("m%d", c.launched())
		m, err := launch(p.command, append(c.env, "MEMBER_PROTOCOL="+protocol, "MEMBER_STRATEGY="+p.strategy), id, instance, c.see)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.living = append(c.living, m)
		c.mu.Unlock()
	}
	return nil
}

// launched numbers the members; each says so by an event.
func (c *crew) launched() int {
	n := 0
	c.mu.Lock()
	for _, e := range c.events {
		if e.What == "launched" {
			n++
		}
	}
	c.mu.Unlock()
	c.see(event{What: "launched", Time: time.Now().UnixMicro()})
	return n
}

// part takes the oldest n members out of the living.
func (c *crew) part(n int) []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.living[:n:n]
	c.living = c.living[n:]
	return gone
}

// leave lets the oldest n members leave in order, all at once.
func (c *crew) leave(n int) error {
	var all sync.WaitGroup
	gone := c.part(n)
	errs := make([]error, n)
	for i, m := range gone {
		all.Go(func() { errs[i] = m.leave(c.see) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// crash kills the oldest n members.
func (c *crew) crash(n int) {
	for _, m := range c.part(n) {
		m.kill(c.see)
	}
}
