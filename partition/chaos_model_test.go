package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
)

// part is what the clients of one partition know: a slice model with room for what may be lost.
type part struct {
	c         *chaos
	name      string
	id        frame.PartitionID
	async     bool
	everAsync bool
	told      ledger         // every record that was acknowledged or read, by offset
	safe      map[int64]bool // acknowledged, and must be there
	loose     map[int64]bool // acknowledged by an async topic: a lost sync or power may take it
	start     int64          // highest start offset seen
	durable   int64          // highest durable offset seen

	// An idempotent producer.
	pid   int64
	epoch int16
	seq   int32
	queue []attempt // to be sent, again and again, in order
}

// attempt is one batch of an idempotent producer.
type attempt struct {
	bytes  []byte
	values []string
}

func (c *chaos) newPart(name string, overrides map[string]string) *part {
	c.pids++
	m := &part{c: c, name: name, told: ledger{}, safe: map[int64]bool{}, loose: map[int64]bool{}, pid: c.pids}
	m.id = c.state.create(c.t, name, overrides)
	m.setDurability(overrides)
	return m
}

func (m *part) setDurability(overrides map[string]string) {
	m.async = overrides["tierbroker.durability"] == "async"
	m.everAsync = m.everAsync || m.async
}

// batch makes a batch of new records.
func (m *part) batch(rnd *rand.Rand, idempotent bool) attempt {
	o := batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	n := 1 + rnd.IntN(4)
	if idempotent {
		o = batch.BuilderOptions{ProducerID: m.pid, ProducerEpoch: m.epoch, FirstSequence: m.seq}
		m.seq += int32(n)
	}
	b := batch.NewBuilder(batch.Codec(rnd.IntN(5)), o)
	var a attempt
	for range n {
		v := fmt.Sprintf("%s/%d", m.name, m.c.values.Add(1))
		ts := m.c.now.Load() + rnd.Int64N(20) - 10
		if rnd.IntN(20) == 0 {
			ts = []int64{-1, 0, ts + 3_000_000, ts - 1_000_000_000}[rnd.IntN(4)]
		}
		m.c.times.Store(v, ts)
		b.Add(ts, []byte("k"), []byte(v+strings.Repeat(".", rnd.IntN(400))), nil)
		a.values = append(a.values, v)
	}
	a.bytes = b.Bytes()
	return a
}

// note remembers an acknowledged batch.
func (m *part) note(ack *Ack, a *attempt) {
	for i, v := range a.values {
		o := ack.BaseOffset + int64(i)
		if old, ok := m.told[o]; ok && old != v {
			m.c.fail("%s: offset %d had %s, and was acknowledged for %s", m.name, o, old, v)
		}
		m.told[o] = v
		if m.async {
			m.loose[o] = true
		} else {
			m.safe[o] = true
		}
	}
}

// mayLose is called when unsynced data may be gone.
func (m *part) mayLose() { clear(m.loose) }

// send makes new batches and sends what is to be sent, several in flight.
func (m *part) send(p *Partition, rnd *rand.Rand) {
	for range rnd.IntN(4) {
		if len(m.queue) < 5 {
			m.queue = append(m.queue, m.batch(rnd, true))
		}
	}
	if err := m.flush(p); err != nil {
		m.refused(err)
	}
	if rnd.IntN(3) == 0 {
		a := m.batch(rnd, false)
		if acks, err := m.put(p, []attempt{a}); err != nil {
			m.refused(err)
		} else {
			m.note(&acks[0], &a)
		}
	}
}

// flush sends the queue; what is acknowledged leaves it.
func (m *part) flush(p *Partition) error {
	acks, err := m.put(p, m.queue)
	for i := range acks {
		m.note(&acks[i], &m.queue[i])
	}
	m.queue = m.queue[len(acks):]
	return err
}

// put appends batches without waiting in between and returns the acknowledgements up to the first failure.
func (m *part) put(p *Partition, as []attempt) (done []Ack, err error) {
	var acks []Ack
	for i := range as {
		var ack Ack
		// The batch is stamped in place.
		if ack, err = p.Append(append([]byte(nil), as[i].bytes...), AppendOptions{Epoch: -1, Now: m.c.now.Load()}); err != nil {
			m.c.keep("%s: %s refused: %v", m.name, as[i].values[0], err)
			break
		}
		acks = append(acks, ack)
	}
	ctx, cancel := context.WithTimeout(m.c.alive, 10*time.Second)
	defer cancel()
	for i := range acks {
		werr := acks[i].Written()
		if werr == nil {
			werr = acks[i].Durable(ctx)
		}
		m.c.keep("%s: %s at %d, duplicate: %v, gen %d end %d: %v", m.name, as[i].values[0], acks[i].BaseOffset, acks[i].Duplicate, acks[i].gen, acks[i].end, werr)
		if werr != nil {
			err = werr
			acks = acks[:i]
			// Whoever appended must wait for the write of all of them before the memory is used again.
			break
		}
	}
	return acks, err
}

// refused checks that an append failed for a reason that the faults explain.
func (m *part) refused(err error) {
	switch {
	case errors.Is(err, ErrStorage), errors.Is(err, ErrNotOwner), errors.Is(err, ErrUnavailable), errors.Is(err, ErrClosing),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case m.everAsync && (errors.Is(err, ErrOutOfOrderSequence) || errors.Is(err, ErrDuplicateSequence)):
		// Records that were acknowledged are lost, and the sequence with them: the producer begins anew.
		m.pid = m.c.nextPid()
		m.epoch, m.seq, m.queue = 0, 0, nil
	default:
		m.c.fail("%s: append: %v", m.name, err)
	}
}

// check holds the partition against the model. Everything works and nobody else is at it.
func (m *part) check(p *Partition) {
	c := m.c
	for limit := time.Now().Add(10 * time.Second); len(m.queue) > 0; {
		if err := m.flush(p); err != nil {
			m.refused(err)
			if time.Now().After(limit) {
				c.fail("%s: append goes on failing: %v", m.name, err)
			}
			c.pause()
		}
	}
	var all []rec
	for {
		o := p.Offsets()
		m.see(o)
		var again bool
		if all, again = m.readAll(p, o); !again {
			break
		}
	}
	m.compare(all)
	m.checkTimes(p, all)
}

// see checks that offsets only go forward.
func (m *part) see(o Offsets) {
	if o.Start < m.start || o.Durable < m.durable || o.Start > o.Durable || o.Durable > o.End || o.Tiered > o.Durable {
		m.c.fail("%s: start was %d and durable %d, now %+v", m.name, m.start, m.durable, o)
	}
	m.start, m.durable = o.Start, o.Durable
}

// readAll reads as a consumer does; again is set when retention has passed it.
func (m *part) readAll(p *Partition, o Offsets) (all []rec, again bool) {
	for at := o.Start; at < o.Durable; {
		got, err := fetch(p, at, 1+m.c.rnd.IntN(6000))
		if errors.Is(err, ErrOffsetOutOfRange) && p.Offsets().Start > at {
			return nil, true
		}
		if errors.Is(err, ErrStorage) && m.c.set.repairing() {
			m.c.pause() // the start has moved and the log can't take the note yet
			return nil, true
		}
		if err != nil {
			m.c.fail("%s: read at %d of %+v: %v", m.name, at, o, err)
		}
		if len(got) == 0 {
			break // void up to the end
		}
		for _, r := range got {
			r.value = strings.TrimRight(r.value, ".")
			all = append(all, r)
		}
		if next := got[len(got)-1].offset + 1; next <= at {
			m.c.fail("%s: read at %d goes back to %d", m.name, at, next)
		} else {
			at = next
		}
	}
	return all, false
}

func (m *part) compare(all []rec) {
	there, seen := map[int64]bool{}, map[string]int64{}
	last := int64(-1)
	for _, r := range all {
		if r.offset <= last {
			m.c.fail("%s: offset %d comes after %d", m.name, r.offset, last)
		}
		last = r.offset
		if old, ok := m.told[r.offset]; ok && old != r.value {
			m.c.fail("%s: offset %d had %s, now %s", m.name, r.offset, old, r.value)
		}
		m.told[r.offset] = r.value
		if at, ok := seen[r.value]; ok {
			m.c.fail("%s: %s is stored at %d and at %d", m.name, r.value, at, r.offset)
		}
		seen[r.value], there[r.offset] = r.offset, true
		if ts, ok := m.c.times.Load(r.value); !ok || ts.(int64) != r.ts {
			m.c.fail("%s: offset %d has timestamp %d, not %v", m.name, r.offset, r.ts, ts)
		}
	}
	for _, must := range []map[int64]bool{m.safe, m.loose} {
		for o := range must {
			if o >= m.start && !there[o] {
				m.c.fail("%s: acknowledged offset %d (%s) is gone", m.name, o, m.told[o])
			}
		}
	}
}

// checkTimes compares lookups by time with a walk over all records.
func (m *part) checkTimes(p *Partition, all []rec) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 4 {
		if len(all) == 0 {
			return
		}
		ts := all[m.c.rnd.IntN(len(all))].ts + int64(m.c.rnd.IntN(3)) - 1
		want := notFound
		for _, r := range all {
			if r.ts >= ts {
				want = TimeResult{Offset: r.offset, Timestamp: r.ts}
				break
			}
		}
		got, err := p.OffsetForTime(ctx, ts)
		if o := p.Offsets(); o.Start != m.start {
			return // retention
		}
		require.NoError(m.c.t, err)
		if got.Offset != want.Offset || got.Timestamp != want.Timestamp {
			m.c.fail("%s: time %d is at %d, found %+v in %+v", m.name, ts, want.Offset, got, p.Offsets())
		}
	}
	best := notFound
	for _, r := range all {
		if best.Offset < 0 || r.ts > best.Timestamp {
			best = TimeResult{Offset: r.offset, Timestamp: r.ts}
		}
	}
	got, err := p.MaxTimestamp(ctx)
	if o := p.Offsets(); o.Start != m.start {
		return
	}
	require.NoError(m.c.t, err)
	if got.Offset != best.Offset {
		m.c.fail("%s: the largest timestamp is at %+v, found %+v in %+v", m.name, best, got, p.Offsets())
	}
}
