package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func init() { Drivers[NATS] = openNATS }

// What a topic is in NATS. A stream is a log with an order of its own; which subjects it has doesn't matter for the order. As many
// streams as partitions would be the exact counterpart of partitions, but NATS advises against many streams, and subjects of one stream
// are how its users spread work. So up to natsSubjects partitions are one stream with a subject each, and offsets are the stream's sequence
// numbers; more partitions are several such streams. NATS keeps out of comparisons with natsMost partitions or more.
const (
	natsSubjects = 16
	natsMost     = 1000
)

// natsDriver drives NATS JetStream through its own client.
type natsDriver struct {
	address string
	nc      *nats.Conn
	js      jetstream.JetStream
}

func openNATS(_ context.Context, address string) (Driver, error) {
	nc, js, err := dialNATS(address)
	if err != nil {
		return nil, err
	}
	return &natsDriver{address: address, nc: nc, js: js}, nil
}

// dialNATS connects, for good: a broker that is away for a while is found again soon.
func dialNATS(address string, opts ...jetstream.JetStreamOpt) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, opts...)
	if err != nil {
		nc.Close()
	}
	return nc, js, err
}

func (d *natsDriver) Close() error {
	d.nc.Close()
	return nil
}

func natsStream(topic string, number int) string { return topic + "-" + strconv.Itoa(number) }

func natsSubject(topic string, partition int) string { return topic + "." + strconv.Itoa(partition) }

// natsPartition is the number at the end of a subject.
func natsPartition(subject string) (int32, error) {
	n, err := strconv.ParseInt(subject[strings.LastIndexByte(subject, '.')+1:], 10, 32)
	return int32(n), err
}

func (d *natsDriver) CreateTopic(ctx context.Context, t Topic) error {
	if t.Partitions >= natsMost {
		return fmt.Errorf("NATS is not compared with %d partitions: as subjects of a few streams they would be no partitions, and %d streams are not how it is meant to be used", t.Partitions, t.Partitions)
	}
	for first := 0; first < t.Partitions; first += natsSubjects {
		c := jetstream.StreamConfig{Name: natsStream(t.Name, first/natsSubjects), Storage: jetstream.FileStorage, Replicas: 1}
		for i := first; i < min(first+natsSubjects, t.Partitions); i++ {
			c.Subjects = append(c.Subjects, natsSubject(t.Name, i))
		}
		if _, err := d.js.CreateStream(ctx, c); err != nil {
			return fmt.Errorf("create stream %s: %w", c.Name, err)
		}
	}
	return nil
}

// natsConsumer reads with an ordered consumer for each stream.
type natsConsumer struct {
	nc      *nats.Conn
	readers []jetstream.ConsumeContext
	records chan jetstream.Msg
	failed  chan error
	closed  chan struct{}
}

const (
	natsFetchBytes = 8 << 20
	natsRecords    = 1024 // that wait between the client and Poll
)

func (d *natsDriver) Consumer(t Topic, o ConsumerOptions) (Consumer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, js, err := dialNATS(d.address)
	if err != nil {
		return nil, err
	}
	c := &natsConsumer{nc: nc, records: make(chan jetstream.Msg, natsRecords), failed: make(chan error, 1), closed: make(chan struct{})}
	filters := map[int][]string{}
	for _, p := range o.Partitions {
		n := int(p) / natsSubjects
		filters[n] = append(filters[n], natsSubject(t.Name, int(p)))
	}
	for n, subjects := range filters {
		if err := c.begin(ctx, js, natsStream(t.Name, n), subjects, o); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *natsConsumer) begin(ctx context.Context, js jetstream.JetStream, stream string, subjects []string, o ConsumerOptions) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: slices.Clip(subjects), DeliverPolicy: jetstream.DeliverAllPolicy}
	if !o.FromStart {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, s.CachedInfo().State.LastSeq+1
	}
	consumer, err := s.OrderedConsumer(ctx, config)
	if err != nil {
		return err
	}
	fetch := natsFetchBytes
	if o.FetchBytes > 0 {
		fetch = o.FetchBytes
	}
	reader, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case c.records <- m:
		case <-c.closed:
		}
	}, jetstream.PullMaxBytes(fetch), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		// The client goes on by itself when the server is away, or was so slow that a heartbeat was missed.
		if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrServerShutdown) {
			return
		}
		select {
		case c.failed <- err:
		default: // there is an error already
		}
	}))
	if err != nil {
		return err
	}
	c.readers = append(c.readers, reader)
	return nil
}

func (c *natsConsumer) Poll(ctx context.Context, each func(partition int32, offset int64, value []byte)) (n int, err error) {
	var m jetstream.Msg
	select {
	case m = <-c.records:
	case err := <-c.failed:
		return 0, err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		partition, err := natsPartition(m.Subject())
		if err != nil {
			return n, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return n, err
		}
		each(partition, int64(meta.Sequence.Stream), m.Data())
		if n++; n == natsRecords {
			return n, nil
		}
		select {
		case m = <-c.records:
		default:
			return n, nil
		}
	}
}

func (c *natsConsumer) Close() error {
	close(c.closed)
	for _, r := range c.readers {
		r.Stop()
	}
	c.nc.Close()
	return nil
}
