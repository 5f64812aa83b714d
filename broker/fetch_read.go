package broker

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// coldGrace is how long a fetch that has enough waits for cold reads under way: as long as a read takes that finds
// everything in the cache. So a consumer of hot and cold partitions gets both, and waits for the bucket with neither.
const coldGrace = 5 * time.Millisecond

// wideWait is the longest poll of a fetch that names very many partitions; a client with a session names only those
// that change.
const wideWait = 500 * time.Millisecond

// run reads until the client's wish is met or its time is over.
func (f *fetchCall) run(ctx context.Context) {
	f.wait = min(max(time.Duration(f.req.MaxWaitMs)*time.Millisecond, 0), f.b.o.MaxRequestTime)
	if f.wide != nil {
		f.wait = min(f.wait, wideWait) // others may be waiting for its part of the budget
	}
	if len(f.list) == 0 && (f.s == nil || len(f.s.parts) == 0) {
		return // nothing to wait for
	}
	// What was hot may turn cold under our hands; a read then asks the bucket and needs a deadline.
	ctx, cancel := context.WithTimeout(ctx, f.wait+f.b.o.ColdTimeout)
	defer cancel()
	hot := false
	for _, p := range f.list {
		p.listed = true
		f.look(p)
		hot = hot || p.place == partition.Hot
	}
	f.coldLeft = min(f.maxBytes, coldMost)
	if hot {
		f.coldLeft = min(f.coldLeft, f.maxBytes/2) // a cold read holds its share until it is done: hot partitions mustn't wait for that
	}
	for _, p := range f.list {
		f.serve(ctx, p)
	}
	for f.await(ctx) {
	}
	f.collect()
	for _, p := range f.list {
		p.listed = false
		if p.cold != nil {
			f.giveUp(p)
			p.starved = true
		}
	}
	f.secondHelping(ctx)
	f.trim()
	if f.s == nil && f.waiter != nil {
		for _, p := range f.list {
			p.watch(nil, f.waiter)
		}
	}
}

// look finds out where one partition stands, from scratch: it may be called again when the partition has changed.
func (f *fetchCall) look(p *fetchPart) {
	f.reset(p)
	t, unknown := findTopic(f.hints.img, f.byID, p.key.name, p.key.topic)
	if unknown != nil {
		f.refuse(p, unknown)
		return
	}
	p.topic = t
	at, missing := f.b.find(t, p.key.index)
	if missing != nil {
		f.refuse(p, missing)
		return
	}
	p.p = at
	if w := f.currentWaiter(); w != nil {
		p.watch(at, w)
	}
	if err := at.CheckEpoch(p.epoch); err != nil {
		f.refuse(p, err)
		return
	}
	o := at.Offsets()
	p.high, p.start = o.Durable, o.Start
	if f.diverges(p) {
		return
	}
	if p.offset > o.Durable && p.offset <= o.End {
		return // written and not yet visible, as after a produce with acks=1: it waits like the end of the log
	}
	p.place = at.Locate(p.offset)
	if p.place == partition.OutOfRange {
		f.refuse(p, partition.ErrOffsetOutOfRange)
	}
}

// serve reads what there is to read of a partition.
func (f *fetchCall) serve(ctx context.Context, p *fetchPart) {
	switch p.place {
	case partition.Hot:
		f.readHot(ctx, p)
	case partition.Cold:
		f.startCold(p)
	case partition.Tail, partition.OutOfRange:
	}
}

// reset takes back what an earlier look at the partition read or granted.
func (f *fetchCall) reset(p *fetchPart) {
	if p.cold != nil {
		f.giveUp(p)
	}
	f.bytes -= p.records
	f.left += p.records
	p.batches.Release()
	p.fetchAnswer = fetchAnswer{high: -1, start: -1, listed: p.listed}
}

// diverges answers a client whose last record is of an epoch that ended before its offset (KIP-595): it must truncate
// or reset before it goes on.
func (f *fetchCall) diverges(p *fetchPart) bool {
	if p.lastEpoch < 0 {
		return false
	}
	epoch, end := p.p.EpochEnd(p.lastEpoch)
	if epoch < 0 || end < 0 {
		f.refuse(p, partition.ErrOffsetOutOfRange)
		return true
	}
	if epoch < p.lastEpoch || end < p.offset {
		p.diverging = &kafka.EpochEnd{Epoch: epoch, EndOffset: end}
		f.urgent = true
		return true
	}
	return false
}

// share is what the partition may take of the budget, and whether its first batch may pass it.
func (f *fetchCall) share(p *fetchPart) (n int, first bool) {
	return max(min(int(p.maxBytes), f.left), 0), f.bytes == 0 && !f.granted
}

func (f *fetchCall) readHot(ctx context.Context, p *fetchPart) {
	n, first := f.share(p)
	if n == 0 && !first {
		p.starved = true
		return
	}
	out, err := p.p.Read(ctx, partition.ReadRequest{Offset: p.offset, MaxBytes: n, AtLeastOne: first})
	f.take(p, out, err)
}

// take puts the outcome of a read into the partition's answer.
func (f *fetchCall) take(p *fetchPart, out partition.Batches, err error) {
	if err != nil {
		out.Release()
		f.refuse(p, err)
		return
	}
	if out.Bytes == 0 {
		out.Release() // a batch that is larger than the limit
	}
	p.batches, p.records = out, out.Bytes
	f.bytes += out.Bytes
	f.left -= out.Bytes
	p.starved = out.Bytes == 0
}

// coldPiece is the most that one cold read takes: a chunk of the cache. A client that asks for tens of megabytes of each partition gets
// them with further requests, for which chunks are read ahead meanwhile. All at once, they would be checked in one
// go, in which a processor does nothing else, and eight such clients would pin more than a whole cache.
const coldPiece = 4 << 20

// coldMost is the most of all cold partitions in one answer. What it holds of the cache can't be used for anybody else until the client has
// taken it; the partitions that are left out are answered in one of the client's next Fetches.
const coldMost = 16 << 20

// startCold grants the partition its share of the budget and queues the read.
func (f *fetchCall) startCold(p *fetchPart) {
	n, first := f.share(p)
	most := min(f.coldLeft, coldPiece)
	p.cut = n > most
	f.coldOut = f.coldOut || p.cut && most <= 0
	n = min(n, most)
	if n == 0 && !first {
		p.starved = true
		return
	}
	p.cold = f.b.cold.start(p.p, partition.ReadRequest{Offset: p.offset, MaxBytes: n, AtLeastOne: first}, f.wakeCold)
	if p.cold == nil {
		p.starved = true
		return
	}
	p.grant = n
	f.left -= n
	f.coldLeft -= n
	f.pending++
	f.granted = f.granted || first
}

// giveUp abandons a cold read and takes its grant back.
func (f *fetchCall) giveUp(p *fetchPart) {
	p.cold.abandon()
	p.cold = nil
	f.left += p.grant
	f.coldLeft += p.grant
	f.pending--
}

// collect takes the results of the cold reads that are done.
func (f *fetchCall) collect() {
	if f.pending == 0 {
		return
	}
	for _, p := range f.list {
		if p.cold == nil {
			continue
		}
		out, err, ok := p.cold.take()
		if !ok {
			continue
		}
		p.cold = nil
		f.left += p.grant
		f.coldLeft += p.grant
		f.pending--
		f.take(p, out, err)
		f.urgent = f.urgent || (p.cut || f.coldOut) && p.records > 0 // there is more, whatever the client wants to wait for
	}
}

// await waits for the next thing to happen and deals with it; false when it is time to answer.
func (f *fetchCall) await(ctx context.Context) bool {
	f.collect()
	d := f.patience()
	if d <= 0 {
		return false
	}
	w := f.currentWaiter()
	if w == nil {
		w = partition.NewWaiter()
		f.waiter = w
		for _, p := range f.list {
			if p.p != nil {
				p.watchFrom(w)
			}
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.C():
		f.changed(ctx, w)
	case <-f.wakeCold:
	case <-timer.C:
	case <-ctx.Done():
		return false
	case <-f.b.ctx.Done():
		return false
	}
	return true
}

// patience is how long to wait for more; not positive when it is time to answer.
func (f *fetchCall) patience() time.Duration {
	now := f.b.o.Now()
	wait := f.wait
	switch enough := f.urgent || f.bytes >= f.minBytes && f.bytes > 0 || f.minBytes == 0; {
	case enough && f.pending == 0:
		return 0
	case enough && (f.urgent || f.bytes > 0):
		if f.enoughAt.IsZero() {
			f.enoughAt = now
		}
		return f.enoughAt.Add(coldGrace).Sub(now)
	case f.pending > 0 && f.bytes == 0:
		wait = max(wait, f.b.o.ColdWait)
	}
	return f.started.Add(wait).Sub(now)
}

// changed looks at the partitions that the waiter reports.
func (f *fetchCall) changed(ctx context.Context, w *partition.Waiter) {
	f.tokens = w.Take(f.tokens[:0])
	f.hints.img = f.b.o.Cluster.Image()
	for _, t := range f.tokens {
		p := f.byToken(t)
		if p == nil || p.cold != nil {
			continue // a cold read under way doesn't depend on what was appended
		}
		if !p.listed {
			p.listed = true
			p.ready = true
			f.list = append(f.list, p)
		}
		f.look(p)
		f.serve(ctx, p)
	}
}

func (f *fetchCall) byToken(t int32) *fetchPart {
	if f.s != nil {
		if int(t) < len(f.s.slots) {
			return f.s.slots[t]
		}
		return nil
	}
	if int(t) < len(f.own) {
		return &f.own[t]
	}
	return nil
}

// currentWaiter is the session's, or the fetch's own once it waits.
func (f *fetchCall) currentWaiter() *partition.Waiter {
	if f.s != nil {
		return f.s.waiter
	}
	return f.waiter
}

// watchFrom registers a fetch's own waiter; what happened since the partition was looked at is reported at once.
func (p *fetchPart) watchFrom(w *partition.Waiter) {
	p.watched = p.p
	p.p.Watch(w, p.token, max(p.high, p.offset))
}

// secondHelping reads hot partitions for which there was no room while cold reads held their shares, or whose first
// batch is larger than the limits when nothing else came: the right to pass them may have gone to a cold read that gave
// nothing.
func (f *fetchCall) secondHelping(ctx context.Context) {
	f.granted = false
	for _, p := range f.list {
		if p.starved && p.place == partition.Hot {
			f.readHot(ctx, p)
		}
	}
}

// trim drops whole answers from the end while the response is larger than max_bytes, the first one excepted. Only a
// cold read whose first batch passed its grant makes that necessary.
func (f *fetchCall) trim() {
	sum, first := 0, true
	for _, p := range f.list {
		if p.records == 0 {
			continue
		}
		if !first && sum+p.records > f.maxBytes {
			f.bytes -= p.records
			p.batches.Release()
			p.batches, p.records, p.starved = partition.Batches{}, 0, true
			continue
		}
		sum, first = sum+p.records, false
	}
}
