package partition

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var (
	fleetSeed  = flag.Uint64("fleet.seed", 0, "first seed of TestFleet")
	fleetCount = flag.Uint64("fleet.count", 0, "how many seeds TestFleet runs, 0 for the usual number")
)

// TestFleet moves partitions of every class between three brokers that die, lose their disks, are paused past their leases,
// and meet faults of the bucket, and holds every partition against a model: what was acknowledged is there, once, at its
// offset; what a consumer has seen stays; nothing a zombie does is acknowledged.
func TestFleet(t *testing.T) {
	n := *fleetCount
	switch {
	case n > 0:
	case testing.Short():
		n = 3
	default:
		n = 8
	}
	for seed := *fleetSeed; seed < *fleetSeed+n; seed++ {
		if !t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { (&fleet{t: t, rnd: rand.New(rand.NewPCG(seed, 11))}).run() }) {
			return
		}
	}
}

type fleet struct {
	t     *testing.T
	rnd   *rand.Rand
	pl    *plane
	parts []*shipped
	log   []string
	down  map[int32]bool
}

// shipped is the model of one partition, written to by one idempotent producer.
type shipped struct {
	id    frame.PartitionID
	seq   int32
	open  bool             // the batch with sequence seq was sent and its outcome isn't known
	acked map[int64]string // by offset
	seen  map[int64]string
}

func (f *fleet) note(format string, args ...any) { f.log = append(f.log, fmt.Sprintf(format, args...)) }

func (f *fleet) run() {
	f.pl, f.down = newPlane(f.t, 3), map[int32]bool{}
	defer func() {
		if f.t.Failed() {
			f.t.Log(strings.Join(f.log, "\n"))
			for _, n := range f.pl.nodes {
				n.eventsMu.Lock()
				for _, e := range n.events {
					f.t.Logf("broker %d: %s/%d: %s: %v", n.id, e.Topic, e.Partition.Partition, e.Message, e.Err)
				}
				n.eventsMu.Unlock()
			}
		}
	}()
	for i, o := range []map[string]string{objectTopic, nil, objectTopic, {"tierbroker.durability": "async"}} {
		id := f.pl.topic(fmt.Sprint("t", i), int32(1+i%3), o)
		f.parts = append(f.parts, &shipped{id: id, acked: map[int64]string{}, seen: map[int64]string{}})
	}
	ops := []func(){f.send, f.send, f.send, f.roll, f.evict, f.restart, f.lose, f.move, f.pause, f.sick, f.maintain, f.reclass}
	for range 60 {
		ops[f.rnd.IntN(len(ops))]()
		if f.t.Failed() {
			return
		}
	}
	f.heal()
	for _, x := range f.parts {
		f.flush(x)
		f.check(x)
	}
}

func (f *fleet) any() *shipped { return f.parts[f.rnd.IntN(len(f.parts))] }

// owner returns the living broker that serves a partition; it waits for a move or failover under way.
func (f *fleet) owner(x *shipped) *Partition {
	var p *Partition
	eventually(f.t, func() bool {
		a := f.pl.assignment(x.id)
		n := f.pl.nodes[a.Owner]
		if n.set == nil || !n.alive || a.State != cluster.Writing {
			return false
		}
		p = n.set.Get(x.id)
		return p != nil && p.State() == Writing
	}, func() string {
		return fmt.Sprintf("%s: %+v\n%s", x.id, f.pl.assignment(x.id), strings.Join(f.log, "\n"))
	})
	return p
}

func (f *fleet) builder(x *shipped) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: x.seq})
	b.Add(1_700_000_000_000, []byte("k"), []byte(fmt.Sprintf("%s-%d", x.id, x.seq)), nil)
	return b.Bytes()
}

// try sends the producer's next batch once.
func (f *fleet) try(x *shipped, p *Partition, patience time.Duration) error {
	x.open = true
	ack, err := p.Append(f.builder(x), AppendOptions{Epoch: -1, Now: f.pl.now.Load()})
	if err == nil {
		err = ack.Written()
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = ack.Durable(ctx)
		cancel()
	}
	if err != nil {
		return err
	}
	v := fmt.Sprintf("%s-%d", x.id, x.seq)
	if was, ok := x.acked[ack.BaseOffset]; ok && was != v {
		f.t.Errorf("offset %d of %s was acknowledged for %s and for %s", ack.BaseOffset, x.id, was, v)
	}
	x.acked[ack.BaseOffset] = v
	x.seq++
	x.open = false
	return nil
}

// flush sends the open batch until it is acknowledged, as an idempotent producer does.
func (f *fleet) flush(x *shipped) {
	for i := 0; x.open; i++ {
		err := f.try(x, f.owner(x), 5*time.Second)
		if err != nil && i > 50 {
			f.t.Fatalf("sequence %d of %s is never acknowledged: %v", x.seq, x.id, err)
		}
		if errors.Is(err, ErrOutOfOrderSequence) {
			f.t.Fatalf("sequence %d of %s: %v\n%s", x.seq, x.id, err, strings.Join(f.log, "\n"))
		}
	}
}

func (f *fleet) send() {
	x := f.any()
	if a := f.pl.assignment(x.id); f.down[a.Owner] {
		return
	}
	for range 1 + f.rnd.IntN(5) {
		f.flush(x)
		err := f.try(x, f.owner(x), time.Duration(1+f.rnd.IntN(1000))*time.Millisecond)
		f.note("send %s seq %d: %v", x.id, x.seq, err)
	}
	f.check(x)
}

// check reads the whole partition as a consumer.
func (f *fleet) check(x *shipped) {
	p := f.owner(x)
	o := p.Offsets()
	got := map[int64]string{}
	for at := o.Start; at < o.Durable; {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		b, err := p.Read(ctx, ReadRequest{Offset: at, MaxBytes: 1 << 20, AtLeastOne: true})
		cancel()
		if errors.Is(err, ErrNotOwner) {
			return
		}
		if errors.Is(err, ErrUnavailable) {
			continue // a fault of the bucket: the client asks again
		}
		require.NoError(f.t, err, "offset %d of %+v\n%s", at, o, strings.Join(f.log, "\n"))
		var flat []byte
		for _, s := range b.Slices {
			flat = append(flat, s...)
		}
		at = b.Next
		b.Release()
		if len(flat) == 0 {
			break // a void at the end
		}
		for len(flat) > 0 {
			_, one, rest, err := batch.Next(flat)
			require.NoError(f.t, err)
			require.NoError(f.t, batch.Iterate(one, func(r *batch.Record) bool {
				if _, twice := got[r.Offset]; twice {
					f.t.Errorf("offset %d of %s is there twice", r.Offset, x.id)
				}
				got[r.Offset] = string(r.Value)
				return true
			}))
			flat = rest
		}
	}
	byValue := map[string]int64{}
	for o, v := range got {
		if at, twice := byValue[v]; twice {
			f.t.Errorf("%s is stored at %d and at %d", v, at, o)
		}
		byValue[v] = o
	}
	for o, v := range x.seen {
		if got[o] != v {
			f.t.Errorf("a consumer saw %q at offset %d of %s, now there is %q", v, o, x.id, got[o])
		}
	}
	for o, v := range x.acked {
		if got[o] != v {
			f.t.Errorf("%q was acknowledged at offset %d of %s, now there is %q", v, o, x.id, got[o])
		}
	}
	x.seen = got
}

func (f *fleet) roll() {
	x := f.any()
	p := f.owner(x)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	f.note("roll %s: %v", x.id, p.Roll(ctx))
}

func (f *fleet) evict() {
	x := f.any()
	p := f.owner(x)
	f.note("evict %s: %v", x.id, p.Evict(context.Background()))
}

// owned returns the partitions of a broker, and whether all of them are safe.
func (f *fleet) owned(id int32) (xs []*shipped, safe bool) {
	safe = true
	for _, x := range f.parts {
		if a := f.pl.assignment(x.id); a.Owner == id {
			xs, safe = append(xs, x), safe && a.Safe
		}
	}
	return xs, safe
}

func (f *fleet) broker() *node { return f.pl.nodes[int32(1+f.rnd.IntN(3))] }

// leaveOpen sends batches without waiting for them, so that a crash finds them under way.
func (f *fleet) leaveOpen(n *node) {
	xs, _ := f.owned(n.id)
	for _, x := range xs {
		if p := n.set.Get(x.id); p != nil && f.rnd.IntN(2) == 0 {
			f.flush(x)
			_ = f.try(x, f.owner(x), time.Duration(f.rnd.IntN(3))*time.Millisecond)
		}
	}
}

// failOver gives the safe partitions of a broker that is gone to the others.
func (f *fleet) failOver(n *node) {
	xs, _ := f.owned(n.id)
	for _, x := range xs {
		if f.pl.assignment(x.id).Safe {
			f.pl.give(x.id, (n.id-1+int32(1+f.rnd.IntN(2)))%3+1, false)
		}
	}
}

// restart kills a broker; it comes back with its disk.
func (f *fleet) restart() {
	n := f.broker()
	f.leaveOpen(n)
	f.note("kill %d", n.id)
	n.kill(f.rnd.Int64())
	if f.rnd.IntN(2) == 0 {
		f.failOver(n)
	}
	n.open()
	f.checkAll()
}

// lose kills a broker with its disk, if all that it owns is safe.
func (f *fleet) lose() {
	n := f.broker()
	f.leaveOpen(n)
	f.note("lose %d", n.id)
	n.kill(f.rnd.Int64())
	if _, safe := f.owned(n.id); safe {
		n.wipe()
	}
	f.failOver(n)
	n.open()
	f.checkAll()
}

func (f *fleet) move() {
	x := f.any()
	a := f.pl.assignment(x.id)
	to := (a.Owner-1+int32(1+f.rnd.IntN(2)))%3 + 1
	f.note("move %s from %d to %d", x.id, a.Owner, to)
	f.owner(x)
	f.pl.target(x.id, to)
	if f.rnd.IntN(2) == 0 {
		_ = f.try(x, f.owner(x), time.Millisecond)
	}
	eventually(f.t, func() bool { return f.pl.assignment(x.id).Target == cluster.NoBroker }, func() string {
		return fmt.Sprintf("%+v\n%s", f.pl.assignment(x.id), strings.Join(f.log, "\n"))
	})
	f.check(x)
}

// pause makes a broker a zombie: others take over, it goes on for a while, and joins again as another run.
func (f *fleet) pause() {
	n := f.broker()
	f.leaveOpen(n)
	f.note("pause %d", n.id)
	xs, _ := f.owned(n.id)
	for _, x := range xs {
		f.flush(x)
	}
	n.gone()
	f.failOver(n)
	for _, x := range xs {
		a := f.pl.assignment(x.id)
		p := n.set.Get(x.id)
		if a.Owner == n.id || p == nil {
			continue
		}
		f.owner(x)
		b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
		b.Add(1, []byte("k"), []byte("zombie"), nil)
		ack, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: f.pl.now.Load()})
		if err == nil {
			err = ack.Durable(context.Background())
		}
		if err == nil && !ack.Duplicate {
			f.t.Errorf("a zombie's batch at offset %d of %s was acknowledged", ack.BaseOffset, x.id)
		}
	}
	n.stop()
	n.open()
	f.checkAll()
}

// sick makes some calls of a broker to the bucket fail, with and without effect, until the next time.
func (f *fleet) sick() {
	f.heal()
	n := f.broker()
	rate := f.rnd.IntN(6)
	f.note("sick %d, rate %d", n.id, rate)
	rnd := rand.New(rand.NewPCG(f.rnd.Uint64(), 3))
	n.store.SetPlan(func(bucket.Call) bucket.Action {
		switch rnd.IntN(40) {
		case 0:
			return bucket.Action{Before: bucket.ErrUnavailable}
		case 1:
			return bucket.Action{After: bucket.ErrUnavailable}
		default:
			return bucket.Action{}
		}
	})
}

func (f *fleet) heal() {
	for _, n := range f.pl.nodes {
		n.store.SetPlan(nil)
	}
}

func (f *fleet) maintain() {
	f.note("maintain")
	f.pl.now.Add(int64(f.rnd.IntN(20)) * 60_000)
	for _, n := range f.pl.nodes {
		for _, p := range n.set.All() {
			_ = p.Maintain(context.Background(), f.pl.now.Load()) // it may be sick
		}
		n.set.sweepOwnStream()
		n.set.sweepStreams(context.Background(), n.set.image.Load(), f.pl.now.Load())
	}
	f.checkAll()
}

// reclass changes the durability of the last topic.
func (f *fleet) reclass() {
	x := f.parts[len(f.parts)-1]
	d := []string{"object", "sync", "async"}[f.rnd.IntN(3)]
	f.note("durability %s", d)
	f.pl.alter(x.id, map[string]string{"tierbroker.durability": d})
	if f.rnd.IntN(2) == 0 {
		p := f.owner(x)
		eventually(f.t, func() bool { return f.pl.assignment(x.id).Safe == (d == "object") || p.State() != Writing }, func() string { return "class is not followed" })
	}
}

func (f *fleet) checkAll() {
	for _, x := range f.parts {
		f.check(x)
	}
}
