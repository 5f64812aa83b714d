package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	rocketsend "github.com/apache/rocketmq-client-go/v2/producer"
	"golang.org/x/sync/semaphore"
)

// Defaults where options say nothing.
const (
	rocketBuffered   = 10_000
	rocketBatchBytes = 1 << 20
)

// rocketProducer gathers records for each queue, as the client of Kafka does by itself: one batch of a queue is under way at a
// time, which keeps the order, and what comes meanwhile is the next one.
type rocketProducer struct {
	client   rocketmq.Producer
	queues   []*rocketQueue
	room     *semaphore.Weighted
	buffered int64
	batch    int
	linger   time.Duration

	// The client learns the way to a topic from its first record, and when several come at once some may find it half known.
	first sync.Mutex
	known atomic.Bool
}

type rocketQueue struct {
	p     *rocketProducer
	queue *primitive.MessageQueue

	mu      sync.Mutex
	waiting []rocketRecord
	bytes   int       // of waiting
	since   time.Time // when the first of waiting came
	busy    bool      // a batch is under way
	timer   *time.Timer
}

type rocketRecord struct {
	value []byte
	done  func(error)
}

// Producer has a client of its own.
func (r *Rocket) Producer(t Topic, o ProducerOptions) (Producer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	queues, err := r.queues(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	name := rocketName("producer")
	client, err := rocketmq.NewProducer(rocketsend.WithGroupName(name), rocketsend.WithInstanceName(name),
		rocketsend.WithNsResolver(primitive.NewPassthroughResolver([]string{r.names})), rocketsend.WithQueueSelector(rocketsend.NewManualQueueSelector()),
		rocketsend.WithSendMsgTimeout(30*time.Second), rocketsend.WithCompressMsgBodyOverHowmuch(math.MaxInt))
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	p := &rocketProducer{client: client, buffered: int64(cmp.Or(o.Buffered, rocketBuffered)), batch: cmp.Or(o.BatchBytes, rocketBatchBytes), linger: o.Linger}
	p.room = semaphore.NewWeighted(p.buffered)
	for _, queue := range queues {
		p.queues = append(p.queues, &rocketQueue{p: p, queue: queue})
	}
	return p, nil
}

func (p *rocketProducer) Send(ctx context.Context, partition int32, value []byte, done func(error)) {
	if int(partition) >= len(p.queues) {
		done(fmt.Errorf("no partition %d", partition))
		return
	}
	if err := p.room.Acquire(ctx, 1); err != nil {
		done(err)
		return
	}
	q := p.queues[partition]
	q.mu.Lock()
	if len(q.waiting) == 0 {
		q.since = time.Now()
	}
	q.waiting = append(q.waiting, rocketRecord{value, done})
	q.bytes += len(value)
	batch := q.next()
	q.mu.Unlock()
	q.send(batch)
}

// next takes the next batch if it is time for it, else sees to being called then. The caller holds q.mu.
func (q *rocketQueue) next() []rocketRecord {
	if q.busy || len(q.waiting) == 0 {
		return nil
	}
	if wait := q.p.linger - time.Since(q.since); q.p.linger > 0 && wait > 0 && q.bytes < q.p.batch {
		if q.timer == nil {
			q.timer = time.AfterFunc(wait, func() {
				q.mu.Lock()
				q.timer = nil
				batch := q.next()
				q.mu.Unlock()
				q.send(batch)
			})
		}
		return nil
	}
	n, size := 0, 0
	for n < len(q.waiting) && (n == 0 || size+len(q.waiting[n].value) <= q.p.batch) {
		size += len(q.waiting[n].value)
		n++
	}
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	q.bytes -= size
	q.busy = true
	return batch
}

// send sends a batch, and when it is answered, the next.
func (q *rocketQueue) send(batch []rocketRecord) {
	if len(batch) == 0 {
		return
	}
	messages := make([]*primitive.Message, len(batch))
	for i, r := range batch {
		messages[i] = &primitive.Message{Topic: q.queue.Topic, Body: r.value, Queue: q.queue}
	}
	err := q.p.publish(messages, func(_ context.Context, result *primitive.SendResult, err error) {
		if err == nil && result.Status != primitive.SendOK {
			err = fmt.Errorf("not as durable as it should be: status %d", result.Status)
		}
		q.answered(batch, err)
	})
	if err != nil {
		go q.answered(batch, err) // not from within Send
	}
}

func (p *rocketProducer) publish(messages []*primitive.Message, answer func(context.Context, *primitive.SendResult, error)) error {
	if !p.known.Load() {
		p.first.Lock()
		defer p.first.Unlock()
	}
	err := p.client.SendAsync(context.Background(), answer, messages...)
	if err == nil {
		p.known.Store(true)
	}
	return err
}

func (q *rocketQueue) answered(batch []rocketRecord, err error) {
	for _, r := range batch {
		r.done(err)
	}
	q.p.room.Release(int64(len(batch)))
	q.mu.Lock()
	q.busy = false
	next := q.next()
	q.mu.Unlock()
	q.send(next)
}

// Flush waits until nothing waits or is under way.
func (p *rocketProducer) Flush(ctx context.Context) error {
	if err := p.room.Acquire(ctx, p.buffered); err != nil {
		return err
	}
	p.room.Release(p.buffered)
	return nil
}

func (p *rocketProducer) Close() error { return p.client.Shutdown() }
