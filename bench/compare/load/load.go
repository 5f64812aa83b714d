// Package load drives brokers: clients of each protocol behind one seam, and loops over them that don't know the protocol.
package load

import (
	"context"
	"time"
)

// Protocol is how a broker is spoken to.
type Protocol string

// Protocols, each with a Driver.
const (
	Kafka    Protocol = "kafka"
	NATS     Protocol = "nats"
	RocketMQ Protocol = "rocketmq"
)

// Topic is what a driver creates. NATS makes one stream with a subject per partition of up to 16, and of one where a scenario says so.
type Topic struct {
	Name       string
	Partitions int
	// Configs are settings of the topic by their Kafka names; drivers take what they know. Systems add their own.
	Configs map[string]string
}

// Driver is one client program's view of a broker. Its methods may be called from several goroutines.
type Driver interface {
	// CreateTopic returns when every partition can be written.
	CreateTopic(ctx context.Context, t Topic) error
	Producer(t Topic, o ProducerOptions) (Producer, error)
	Consumer(t Topic, o ConsumerOptions) (Consumer, error)
	Close() error
}

// ProducerOptions are those of one producer, with connections of its own.
type ProducerOptions struct {
	Acks       int           // -1 or 1
	Linger     time.Duration // how long a batch waits for more records
	BatchBytes int           // most bytes of a batch
	Buffered   int           // most records that wait; Send blocks beyond
}

// Producer sends records. Send hands one over and returns; done is called once with what came of it, from any goroutine, and must not block.
type Producer interface {
	Send(ctx context.Context, partition int32, value []byte, done func(error))
	Flush(ctx context.Context) error
	Close() error
}

// ConsumerOptions are those of one consumer, with connections of its own.
type ConsumerOptions struct {
	Partitions []int32 // whose records it takes; the whole of them, no group
	FromStart  bool    // else from the end as it is when Consumer returns
	FetchBytes int     // most bytes of an answer
}

// Consumer takes records. Poll waits for some and calls each with the value, which is only good during the call; it returns how many there were.
type Consumer interface {
	Poll(ctx context.Context, each func(partition int32, offset int64, value []byte)) (int, error)
	Close() error
}

// Open makes a driver for a broker; each protocol registers itself from its file.
type Open func(ctx context.Context, address string) (Driver, error)

// Drivers by protocol.
var Drivers = map[Protocol]Open{}
