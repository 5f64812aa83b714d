package broker

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// Partitions finds the partitions that this broker holds. Local makes one from a partition.Set.
type Partitions interface {
	// Get returns nil when the partition isn't here.
	Get(id frame.PartitionID) Partition
}

// Partition is one partition on this broker, as package partition specifies it.
type Partition interface {
	Writer
	Reader
	History
}

// Writer is the producing side of a partition.
type Writer interface {
	// Append validates and stamps exactly one batch in place and enqueues it in the commit log. The batch must
	// stay unchanged until Written has returned.
	Append(b []byte, o partition.AppendOptions) (partition.Ack, error)
	// Writing returns the epoch under which the partition takes writes here; false when it doesn't.
	Writing() (epoch int32, ok bool)
	// Written returns when the append is in the page cache.
	Written(a *partition.Ack) error
	// Durable returns when the append is safe at the topic's durability; DurableBy does so, or with an error at the
	// deadline.
	Durable(ctx context.Context, a *partition.Ack) error
	DurableBy(ctx context.Context, a *partition.Ack, deadline time.Time) error
}

// Reader is the consuming side of a partition.
type Reader interface {
	Offsets() partition.Offsets
	// CheckEpoch compares a client's leader epoch, -1 for any, and tells whether reads are served here.
	CheckEpoch(epoch int32) error
	// Locate says where a read at offset would be served from; it does no I/O.
	Locate(offset int64) partition.Place
	Read(ctx context.Context, r partition.ReadRequest) (partition.Batches, error)
	// Watch reports every change of the partition to w until Unwatch.
	Watch(w *partition.Waiter, token int32, offset int64)
	Unwatch(w *partition.Waiter)
}

// History answers questions about a partition's past.
type History interface {
	OffsetForTime(ctx context.Context, ts int64) (partition.TimeResult, error)
	MaxTimestamp(ctx context.Context) (partition.TimeResult, error)
	// EpochEnd returns the largest epoch not above the given one and the offset it ended at; -1, -1 when there
	// is none.
	EpochEnd(epoch int32) (int32, int64)
	// EpochAt returns the leader epoch of the record at offset, -1 when it isn't known.
	EpochAt(offset int64) int32
	DeleteRecords(ctx context.Context, before int64) (start int64, err error)
	Stats() partition.Stats
}

// ClusterState is the broker's view of the cluster.
type ClusterState interface {
	Image() *cluster.Image
	// Wait returns the first image with a revision above after.
	Wait(ctx context.Context, after int64) (*cluster.Image, error)
	// AllocateProducerIDs returns the first of n producer ids that nobody else gets.
	AllocateProducerIDs(ctx context.Context, n int) (int64, error)
}

// local is a partition of a partition.Set. It is one pointer, so making a Partition of it allocates nothing.
type local struct{ *partition.Partition }

func (p local) Writing() (int32, bool) {
	return p.Offsets().Epoch, p.State() == partition.Writing
}

// Append is the partition's, counted.
func (p local) Append(b []byte, o partition.AppendOptions) (partition.Ack, error) {
	a, err := p.Partition.Append(b, o)
	if err == nil {
		p.CountIn(len(b))
	}
	return a, err
}

// Read is the partition's, counted.
func (p local) Read(ctx context.Context, r partition.ReadRequest) (partition.Batches, error) {
	b, err := p.Partition.Read(ctx, r)
	p.CountOut(b.Bytes)
	return b, err
}

func (local) Written(a *partition.Ack) error { return a.Written() }

func (local) Durable(ctx context.Context, a *partition.Ack) error { return a.Durable(ctx) }

func (local) DurableBy(ctx context.Context, a *partition.Ack, deadline time.Time) error {
	return a.DurableBy(ctx, deadline)
}

type localSet struct{ set *partition.Set }

// Local serves the partitions of a Set.
func Local(s *partition.Set) Partitions { return localSet{s} }

func (l localSet) Get(id frame.PartitionID) Partition {
	p := l.set.Get(id)
	if p == nil {
		return nil
	}
	return local{p}
}

// ClusterAdmin changes the cluster's state. Calls return when the change is committed and visible in Image.
type ClusterAdmin interface {
	CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, error)
	DeleteTopic(ctx context.Context, id frame.TopicID) error
	CreatePartitions(ctx context.Context, id frame.TopicID, count int32) (*cluster.Topic, error)
	AlterTopicConfig(ctx context.Context, id frame.TopicID, ops []cluster.ConfigOp, replace bool) (*cluster.Topic, error)
	// AlterBrokerConfig changes the dynamic settings of a broker, or of all for cluster.DefaultConfig.
	AlterBrokerConfig(ctx context.Context, broker int32, ops []cluster.ConfigOp, replace bool) error
	// SetMoves asks for partitions at other brokers; the controller carries it out. CancelMoves takes that back.
	SetMoves(ctx context.Context, moves []cluster.MoveWish) error
	CancelMoves(ctx context.Context, ids []frame.PartitionID) error
}
