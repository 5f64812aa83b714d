package load

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// memoryProtocol is a broker in this process, so that what it does wrong is chosen by a test.
const memoryProtocol Protocol = "memory"

func TestMain(m *testing.M) {
	Drivers[memoryProtocol] = func(_ context.Context, address string) (Driver, error) {
		if address == "nowhere" {
			return nil, errors.New("nobody is there")
		}
		return &memory{hang: address == "hangs"}, nil
	}
	if len(os.Args) == 2 && os.Args[1] == WorkerArg {
		if err := Work(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type memory struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next record
	logs    map[int32][][]byte
	dues    []int64 // of all records in the order of their coming

	stallAt, stallFor time.Duration // since the first record: Send blocks
	stalled           bool
	first             time.Time
	loseAfter         int  // records that are taken before acknowledgements stop; 0 for never
	hang              bool // Close never returns
}

func (b *memory) CreateTopic(_ context.Context, t Topic) error {
	b.logs, b.changed = map[int32][][]byte{}, make(chan struct{})
	for p := range t.Partitions {
		b.logs[int32(p)] = nil
	}
	return nil
}

func (b *memory) Producer(Topic, ProducerOptions) (Producer, error) { return memoryProducer{b}, nil }

func (b *memory) Consumer(_ Topic, o ConsumerOptions) (Consumer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &memoryConsumer{b: b, next: map[int32]int{}}
	for _, p := range o.Partitions {
		c.next[p] = 0
		if !o.FromStart {
			c.next[p] = len(b.logs[p])
		}
	}
	return c, nil
}

func (b *memory) Close() error {
	if b.hang {
		select {}
	}
	return nil
}

type memoryProducer struct{ *memory }

func (p memoryProducer) Send(_ context.Context, partition int32, value []byte, done func(error)) {
	if p.take(partition, value) {
		done(nil)
	}
}

// take stores a record and tells whether it is acknowledged.
func (b *memory) take(partition int32, value []byte) bool {
	b.mu.Lock()
	if b.first.IsZero() {
		b.first = time.Now()
	}
	stall := b.stallFor > 0 && !b.stalled && time.Since(b.first) >= b.stallAt
	b.stalled = b.stalled || stall
	b.mu.Unlock()
	if stall {
		<-time.After(b.stallFor) // the stall itself, which the loop must count
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[partition] = append(b.logs[partition], append([]byte{}, value...))
	b.dues = append(b.dues, int64(binary.LittleEndian.Uint64(value)))
	close(b.changed)
	b.changed = make(chan struct{})
	return b.loseAfter == 0 || len(b.dues) <= b.loseAfter
}

func (p memoryProducer) Flush(context.Context) error { return nil }
func (p memoryProducer) Close() error                { return nil }

type memoryConsumer struct {
	b    *memory
	next map[int32]int
}

func (c *memoryConsumer) Poll(ctx context.Context, each func(int32, int64, []byte)) (n int, err error) {
	for {
		c.b.mu.Lock()
		changed := c.b.changed
		for p, at := range c.next {
			for ; at < len(c.b.logs[p]); at++ {
				each(p, int64(at), c.b.logs[p][at])
				n++
			}
			c.next[p] = at
		}
		c.b.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (c *memoryConsumer) Close() error { return nil }
