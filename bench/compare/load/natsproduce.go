package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// A producer has at most natsPending records and natsPendingBytes without an answer, as its client does unless told otherwise: JetStream refuses
// records when more than 128 MiB or 100,000 of them wait in front of a stream.
const (
	natsPending      = 4000
	natsPendingBytes = 8 << 20
)

var errNATSClosed = errors.New("the producer was closed before the answer")

// natsProducer publishes asynchronously and hands each answer to its record. Answers of a stream come in the order of its records, so
// one goroutine for each stream waits for all of them.
type natsProducer struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects []string
	room     *semaphore.Weighted // in bytes; a record takes its bytes and at least unit
	most     int64
	unit     int64

	mu      sync.Mutex // one Send at a time puts a record on the wire and into its queue
	queues  []chan natsAnswer
	closed  chan struct{}
	waiters sync.WaitGroup
}

type natsAnswer struct {
	future jetstream.PubAckFuture
	weight int64
	done   func(error)
}

func (d *natsDriver) Producer(t Topic, o ProducerOptions) (Producer, error) {
	pending := natsPending
	if o.Buffered > 0 {
		pending = min(pending, o.Buffered)
	}
	nc, js, err := dialNATS(d.address, jetstream.WithPublishAsyncMaxPending(pending+1), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	p := &natsProducer{nc: nc, js: js, closed: make(chan struct{}), unit: max(1, natsPendingBytes/int64(pending))}
	p.most = p.unit * int64(pending)
	p.room = semaphore.NewWeighted(p.most)
	for i := range t.Partitions {
		p.subjects = append(p.subjects, natsSubject(t.Name, i))
	}
	for range (t.Partitions + natsSubjects - 1) / natsSubjects {
		queue := make(chan natsAnswer, pending)
		p.queues = append(p.queues, queue)
		p.waiters.Go(func() { p.wait(queue) })
	}
	return p, nil
}

// wait passes on a stream's answers.
func (p *natsProducer) wait(queue chan natsAnswer) {
	for a := range queue {
		var err error
		select {
		case <-a.future.Ok():
		case err = <-a.future.Err():
		case <-p.closed:
			err = errNATSClosed
		}
		a.done(err)
		p.room.Release(a.weight)
	}
}

func (p *natsProducer) Send(ctx context.Context, partition int32, value []byte, done func(error)) {
	if int(partition) >= len(p.subjects) {
		done(fmt.Errorf("no partition %d", partition))
		return
	}
	weight := min(p.most, max(p.unit, int64(len(value))))
	if err := p.room.Acquire(ctx, weight); err != nil {
		done(err)
		return
	}
	p.mu.Lock()
	future, err := p.js.PublishAsync(p.subjects[partition], value)
	if err == nil {
		p.queues[int(partition)/natsSubjects] <- natsAnswer{future, weight, done} // there is room for as many as may be pending
	}
	p.mu.Unlock()
	if err != nil {
		p.room.Release(weight)
		done(err)
	}
}

// Flush waits until nothing is pending.
func (p *natsProducer) Flush(ctx context.Context) error {
	if err := p.room.Acquire(ctx, p.most); err != nil {
		return err
	}
	p.room.Release(p.most)
	return nil
}

// Close must come after the last Send.
func (p *natsProducer) Close() error {
	close(p.closed)
	for _, queue := range p.queues {
		close(queue)
	}
	p.waiters.Wait()
	p.nc.Close()
	return nil
}
