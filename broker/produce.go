package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// produceCall is one Produce request, reused.
type produceCall struct {
	b       *Broker
	c       call
	req     kafka.ProduceRequest
	resp    kafka.ProduceResponse
	appends []pendingAppend
	hints   hints
	out     []byte
	bufs    [1][]byte
	wide    func() // gives back the part of a request of very many partitions in their budget; nil: it has none
	release func()
}

// pendingAppend is a batch on its way; topic and part say where its answer stands in the response.
type pendingAppend struct {
	p           Partition
	topic, part int
	ack         partition.Ack
	bytes       int
	records     int
}

// keptOut is the size of an answer above which a request's state is left to the garbage collector instead of being kept.
const keptOut = 1 << 20

func newProduceCall() any {
	r := new(produceCall)
	r.release = r.free
	return r
}

func (r *produceCall) free() {
	if r.wide != nil {
		r.wide() // and everything to the garbage collector
		*r = produceCall{}
		return
	}
	clear(r.appends)
	r.appends = r.appends[:0]
	for i := range r.req.Topics {
		clear(r.req.Topics[i].Partitions) // they point into the network buffer
	}
	pool := &r.b.produceCalls
	r.b, r.c, r.hints, r.bufs[0] = nil, call{}, hints{endpoints: r.hints.endpoints[:0]}, nil
	if cap(r.out) <= keptOut {
		pool.Put(r)
	}
}

// mutedUntil is the key under which a connection keeps the time until which its producers are held back.
type mutedUntil struct{}

// produce answers Produce, versions 3 to 13. Everything that changes a partition happens here, in request order.
func (b *Broker) produce(ctx context.Context, c *call) kafka.Pending {
	b.holdBack(ctx, c)
	r := b.produceCalls.Get().(*produceCall)
	r.b, r.c = b, *c
	if err := kafka.DecodeProduce(c.Version, c.Body, &r.req); err != nil {
		return hangUp(err) // what a malformed request has made of r is not kept
	}
	var err error
	if r.wide, err = b.admitElements(ctx, c, produceElements(&r.req)); err != nil {
		return hangUp(err)
	}
	r.prepare()
	r.append()
	r.written()
	if r.req.Acks == 0 {
		return r.silent()
	}
	return r
}

// prepare gives the response the request's shape.
func (r *produceCall) prepare() {
	r.hints.img, r.hints.listener = r.b.o.Cluster.Image(), r.c.listener()
	r.resp.ThrottleMs, r.resp.NodeEndpoints = 0, nil
	r.resp.Topics = resize(r.resp.Topics, len(r.req.Topics))
	for i := range r.req.Topics {
		t, out := &r.req.Topics[i], &r.resp.Topics[i]
		out.Name, out.ID = t.Name, t.ID
		out.Partitions = resize(out.Partitions, len(t.Partitions))
		for j := range t.Partitions {
			out.Partitions[j] = kafka.ProducePartitionResult{Index: t.Partitions[j].Index, BaseOffset: -1, LogAppendTime: -1, LogStart: -1}
		}
	}
}

// resize sets a slice's length and keeps the capacity of what its elements hold.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return append(s[:cap(s)], make([]T, n-cap(s))...)
}

// append enqueues every batch in the commit log.
func (r *produceCall) append() {
	whole := r.refusal()
	now := r.b.o.Now().UnixMilli()
	for i := range r.req.Topics {
		in := &r.req.Topics[i]
		t, unknown := findTopic(r.hints.img, r.c.Version >= 13, in.Name, in.ID)
		for j := range in.Partitions {
			part := &in.Partitions[j]
			err := whole
			if err == nil && unknown != nil {
				err = unknown
			}
			if err == nil {
				err = r.appendOne(t, i, j, part, now)
			}
			if err != nil {
				r.refuse(t, i, j, err)
			}
		}
	}
}

// refusal is what is wrong with the request as a whole; each partition is answered with it.
func (r *produceCall) refusal() error {
	switch {
	case r.req.Acks < -1 || r.req.Acks > 1:
		return kerr.InvalidRequiredAcks
	case r.req.TransactionalID != nil:
		// No transaction can have been begun: InitProducerId gives no id for one.
		return kerr.InvalidTxnState
	}
	return nil
}

func (r *produceCall) appendOne(t *cluster.Topic, i, j int, part *kafka.ProducePartition, now int64) error {
	if t.Internal {
		return refuse(kerr.InvalidTopicException, "internal topics take no records from clients")
	}
	records, err := r.checkRecords(part.Records)
	if err != nil {
		return err
	}
	p, missing := r.b.find(t, part.Index)
	if missing != nil {
		return missing
	}
	if restsOnLease(t) && !r.b.o.LeaseValid() {
		return kerr.NotLeaderForPartition
	}
	ack, err := p.Append(part.Records, partition.AppendOptions{Epoch: -1, Now: now})
	if err != nil {
		return err
	}
	r.appends = append(r.appends, pendingAppend{p: p, topic: i, part: j, ack: ack, bytes: len(part.Records), records: records})
	return nil
}

// checkRecords checks what a Produce request demands of its records beyond a valid batch: exactly one batch per
// partition, of format 2, with a codec that the request's version knows. The rest is for the partition to check.
func (r *produceCall) checkRecords(records []byte) (int, error) {
	if len(records) == 0 {
		return 0, refuse(kerr.InvalidRecord, fmt.Sprintf("Produce requests with version %d must have at least one record batch", r.c.Version))
	}
	if len(records) > magicAt && (records[magicAt] == 0 || records[magicAt] == 1) {
		return 0, refuse(kerr.UnsupportedForMessageFormat, "message formats 0 and 1 are not supported, only record batches (format 2)")
	}
	h, err := batch.ParseHeader(records)
	if err != nil {
		return 0, err
	}
	if h.Size() < len(records) {
		return 0, refuse(kerr.InvalidRecord, fmt.Sprintf("Produce requests with version %d must have exactly one record batch per partition", r.c.Version))
	}
	if h.Codec() == batch.Zstd && r.c.Version < 7 {
		return 0, refuse(kerr.UnsupportedCompressionType, "Produce requests below version 7 are not allowed to use zstd")
	}
	switch {
	case h.IsControl():
		return 0, refuse(kerr.InvalidRecord, "clients may not write control records")
	case h.IsTransactional():
		return 0, kerr.InvalidTxnState
	}
	return int(h.RecordCount), nil
}

// magicAt is where the message format stands in a batch, and in a message of the formats before.
const magicAt = 16

// refuse puts an error into the response.
func (r *produceCall) refuse(t *cluster.Topic, i, j int, err error) {
	out := &r.resp.Topics[i].Partitions[j]
	name := r.resp.Topics[i].Name
	out.Error = r.b.fail(&r.c, name, err)
	out.BaseOffset, out.LogAppendTime, out.LogStart = -1, -1, -1
	var f *fault
	var bad *batch.RecordError
	switch {
	case errors.As(err, &bad):
		out.ErrorMessage = ptr("One or more records have been rejected")
		out.RecordErrors = []kafka.RecordError{{Index: int32(bad.Index), Message: &bad.Msg}}
	case errors.As(err, &f):
		out.ErrorMessage = &f.msg
	case out.Error != -1 && !misdirected(out.Error) && !errors.As(err, new(*kerr.Error)):
		out.ErrorMessage = ptr(err.Error())
	}
	if t != nil && r.c.Version >= 10 && misdirected(out.Error) {
		out.CurrentLeader = r.hints.leader(r.b, frame.PartitionID{Topic: t.ID, Partition: out.Index})
		r.resp.NodeEndpoints = r.hints.endpoints
	}
}

// written waits until every batch is in the page cache; then the network buffer is free.
func (r *produceCall) written() {
	kept := r.appends[:0]
	var throttle time.Duration
	for i := range r.appends {
		a := &r.appends[i]
		t := &r.resp.Topics[a.topic]
		if err := a.p.Written(&a.ack); err != nil {
			r.refuse(nil, a.topic, a.part, err)
			continue
		}
		throttle = max(throttle, a.ack.Throttle)
		out := &t.Partitions[a.part]
		out.BaseOffset, out.LogAppendTime, out.LogStart = a.ack.BaseOffset, a.ack.AppendTime, a.ack.LogStart
		kept = append(kept, *a)
	}
	clear(r.appends[len(kept):])
	r.appends = kept
	r.throttle(throttle)
}

// Wait answers: at once for acks=1, when everything is durable for acks=-1.
func (r *produceCall) Wait(ctx context.Context) kafka.Response {
	if r.req.Acks == -1 {
		r.durable(ctx)
	}
	r.doubted()
	r.count()
	r.out = kafka.AppendProduceResponse(r.out[:0], r.c.Version, &r.resp)
	r.bufs[0] = r.out
	return kafka.Response{Bufs: net.Buffers(r.bufs[:]), Release: r.release}
}

// durable waits for all appends under one deadline, the client's. A server that stops still tells the outcome; a
// client that is gone is not waited for.
func (r *produceCall) durable(ctx context.Context) {
	d := min(max(time.Duration(r.req.TimeoutMs)*time.Millisecond, 0), r.b.o.MaxRequestTime)
	by := r.c.Received.Add(d)
	for i := range r.appends {
		a := &r.appends[i]
		err := a.p.DurableBy(ctx, &a.ack, by)
		switch {
		case err == nil:
		case errors.Is(context.Cause(ctx), kafka.ErrShutdown):
			ctx = context.WithoutCancel(ctx)
			err = a.p.DurableBy(ctx, &a.ack, by)
		case errors.Is(err, kafka.ErrClosed):
			err = context.Canceled // nobody will read the answer
		}
		if err != nil {
			r.refuse(nil, a.topic, a.part, err)
			a.bytes = 0
		}
	}
}

func (r *produceCall) count() {
	for i := range r.appends {
		a := &r.appends[i]
		if a.bytes == 0 || a.ack.Duplicate {
			continue
		}
		in := &r.req.Topics[a.topic]
		if t, _ := findTopic(r.hints.img, r.c.Version >= 13, in.Name, in.ID); t != nil {
			r.b.metrics.Produced(t.Name, t.ID, a.bytes, a.records)
		}
	}
}

// silent ends a request with acks=0: no answer, and like in Kafka a closed connection when something went wrong,
// because there is no other way to tell the producer.
func (r *produceCall) silent() kafka.Pending {
	defer r.free()
	r.count()
	for i := range r.resp.Topics {
		t := &r.resp.Topics[i]
		for j := range t.Partitions {
			if e := t.Partitions[j].Error; e != 0 {
				return hangUp(fmt.Errorf("produce with acks=0 to partition %d of %q failed: %w", t.Partitions[j].Index, t.Name, kerr.ErrorForCode(e)))
			}
		}
	}
	return kafka.Done{None: true}
}

// throttle tells the client to hold back, and notes it for clients that don't (KIP-219: the answer isn't delayed,
// what comes next on the connection is).
func (r *produceCall) throttle(d time.Duration) {
	if d <= 0 {
		return
	}
	d = min(d, r.b.o.MaxMutePerReply)
	r.resp.ThrottleMs = int32(max(d.Milliseconds(), 1))
	if r.c.Conn != nil {
		r.c.Conn.SetValue(mutedUntil{}, r.b.o.Now().Add(d))
	}
}

// holdBack waits until the connection may produce again.
func (b *Broker) holdBack(ctx context.Context, c *call) {
	if c.Conn == nil {
		return
	}
	until, ok := c.Conn.Value(mutedUntil{}).(time.Time)
	if !ok {
		return
	}
	d := until.Sub(b.o.Now())
	if d <= 0 {
		return
	}
	t := time.NewTimer(min(d, b.o.MaxMutePerReply))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
}
