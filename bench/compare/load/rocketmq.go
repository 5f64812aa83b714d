package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func init() {
	Drivers[RocketMQ] = func(_ context.Context, address string) (Driver, error) { return OpenRocket(address) }
	rlog.SetLogLevel("fatal") // what goes wrong comes as an error
}

// RocketAddress is the address of a broker of RocketMQ and the name server that knows it.
func RocketAddress(names, broker string) string { return names + "/" + broker }

// Rocket drives RocketMQ through its Go client of the remoting protocol. A partition is a queue.
type Rocket struct {
	names, broker string
	admin         rocketAdmin
}

// rocketAdmin is what is needed of the client's administration.
type rocketAdmin interface {
	CreateTopic(ctx context.Context, opts ...admin.OptionCreate) error
	FetchPublishMessageQueues(ctx context.Context, topic string) ([]*primitive.MessageQueue, error)
	Close() error
}

// OpenRocket is for an address as RocketAddress makes it.
func OpenRocket(address string) (*Rocket, error) {
	names, broker, ok := strings.Cut(address, "/")
	if !ok {
		return nil, fmt.Errorf("address %q of RocketMQ: want that of the name server and of the broker", address)
	}
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{names})))
	if err != nil {
		return nil, err
	}
	return &Rocket{names: names, broker: broker, admin: a}, nil
}

// Knows is nil when the name server knows a topic.
func (r *Rocket) Knows(ctx context.Context, topic string) error {
	_, err := r.queues(ctx, topic)
	return err
}

// Close ends the connections of the driver itself.
func (r *Rocket) Close() error { return r.admin.Close() }

// CreateTopic makes a queue for each partition.
func (r *Rocket) CreateTopic(ctx context.Context, t Topic) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// Its client gives each request 5 s, which a machine that is busy may need longer for; a second request changes nothing.
		err := r.admin.CreateTopic(ctx, admin.WithTopicCreate(t.Name), admin.WithBrokerAddrCreate(r.broker),
			admin.WithReadQueueNums(t.Partitions), admin.WithWriteQueueNums(t.Partitions))
		if err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w: %w", t.Name, context.Cause(ctx), err)
		}
	}
	for {
		queues, err := r.queues(ctx, t.Name)
		if err == nil && len(queues) == t.Partitions {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d queues of %s are known: %w", len(queues), t.Partitions, t.Name, errors.Join(context.Cause(ctx), err))
		}
	}
}

// queues are a topic's, by number.
func (r *Rocket) queues(ctx context.Context, topic string) ([]*primitive.MessageQueue, error) {
	queues, err := r.admin.FetchPublishMessageQueues(ctx, topic)
	slices.SortFunc(queues, func(a, b *primitive.MessageQueue) int { return a.QueueId - b.QueueId })
	return queues, err
}

// rocketNumber tells clients apart, which share connections otherwise.
var rocketNumber atomic.Int64

func rocketName(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, time.Now().UnixNano(), rocketNumber.Add(1))
}

type rocketConsumer struct {
	client  rocketmq.PullConsumer
	batches chan []*primitive.MessageExt
	failed  chan error
	ctx     context.Context
	cancel  context.CancelFunc
}

// rocketPull is what one pull asks for, and the most that the broker gives unless told otherwise: it knows no bytes of an answer.
const rocketPull = 32

// Consumer pulls each queue in a goroutine of its own.
func (r *Rocket) Consumer(t Topic, o ConsumerOptions) (Consumer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	queues, err := r.queues(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	name := rocketName("consumer")
	client, err := consumer.NewPullConsumer(consumer.WithGroupName(name), consumer.WithInstance(name),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.names})))
	if err != nil {
		return nil, err
	}
	// No queue is assigned: the client would read it on its own.
	if err := client.Assign(t.Name, nil); err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	c := &rocketConsumer{client: client, batches: make(chan []*primitive.MessageExt, 2*len(o.Partitions)), failed: make(chan error, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, p := range o.Partitions {
		if int(p) >= len(queues) {
			return nil, errors.Join(fmt.Errorf("no partition %d", p), c.Close())
		}
		offset := int64(0)
		if !o.FromStart {
			const beyond = 1 << 60 // is answered with where the end is
			answer, err := client.PullFrom(ctx, queues[p], beyond, 1)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			offset = answer.NextBeginOffset
		}
		go c.pull(queues[p], offset)
	}
	return c, nil
}

// pull reads a queue for good. The client's pulls can't be broken off: they end with its connections.
func (c *rocketConsumer) pull(queue *primitive.MessageQueue, offset int64) {
	for c.ctx.Err() == nil {
		answer, err := c.client.PullFrom(c.ctx, queue, offset, rocketPull)
		if err != nil {
			select {
			case c.failed <- err:
			default: // there is an error already
			}
			return
		}
		offset = answer.NextBeginOffset
		if answer.Status != primitive.PullFound {
			continue
		}
		select {
		case c.batches <- answer.GetMessageExts():
		case <-c.ctx.Done():
		}
	}
}

func (c *rocketConsumer) Poll(ctx context.Context, each func(partition int32, offset int64, value []byte)) (n int, err error) {
	var batch []*primitive.MessageExt
	select {
	case batch = <-c.batches:
	case err := <-c.failed:
		return 0, err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		for _, m := range batch {
			each(int32(m.Queue.QueueId), m.QueueOffset, m.Body)
		}
		if n += len(batch); n >= 1024 {
			return n, nil
		}
		select {
		case batch = <-c.batches:
		default:
			return n, nil
		}
	}
}

func (c *rocketConsumer) Close() error {
	c.cancel()
	return c.client.Shutdown()
}
