package journal

import (
	"context"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/partition"
)

// Record is one record of a machine. A nil value is a tombstone.
type Record struct{ Key, Value []byte }

// Step is what an operation led to.
type Step struct {
	// Records are applied already; they are appended as one batch. Nothing changes them any more.
	Records []Record
	// Done is called once, from any goroutine and without a lock: with nil when Records, and all records of earlier
	// steps, are durable; else with an error of this package. It must not block. Nil is fine.
	Done func(err error)
}

// Machine is the state of one shard. The journal calls it from one goroutine at a time.
type Machine interface {
	// Apply gives a record at load, in log order. It keeps nothing of the record's memory.
	Apply(r Record)
	// Loaded ends loading.
	Loaded(now time.Time) Step
	// Snapshot gives the records that rebuild the state. They are copied before emit returns.
	Snapshot(emit func(r Record))
	// Deadline returns when Expire wants to be called; false for never.
	Deadline() (time.Time, bool)
	// Expire does what is due.
	Expire(now time.Time) Step
	// Discard is the last call: the machine is thrown away. Whoever waits for an answer that no Done carries must be
	// told now.
	Discard(err error)
}

// Partition is the partition of a shard on this broker, as package partition specifies it.
type Partition interface {
	// Writing returns the epoch under which the partition takes writes here; false when it doesn't.
	Writing() (epoch int32, ok bool)
	Offsets() partition.Offsets
	Append(b []byte, o partition.AppendOptions) (partition.Ack, error)
	Written(a *partition.Ack) error
	Durable(ctx context.Context, a *partition.Ack) error
	Read(ctx context.Context, r partition.ReadRequest) (partition.Batches, error)
	DeleteRecords(ctx context.Context, before int64) (start int64, err error)
}

// Options of a Journal. Zero sizes and durations take the defaults given.
type Options[M Machine] struct {
	Shards int32
	// Partition returns the partition of a shard, nil when it isn't here. It must not block.
	Partition func(shard int32) Partition
	// New returns an empty machine.
	New     func(shard int32) M
	Now     func() time.Time // default: time.Now
	OnEvent func(Event)      // must not block

	SnapshotBytes int64         // least size of a log that is replaced by a snapshot; default 16 MiB
	MaxHeldBytes  int64         // records of one shard that wait to be appended; default 8 MiB
	Loads         int           // shards loaded at once; default 4
	RetryMin      time.Duration // pause after a failure, doubled with each; default 50 ms
	RetryMax      time.Duration // default 5 s
}

func (o *Options[M]) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.SnapshotBytes <= 0 {
		o.SnapshotBytes = 16 << 20
	}
	if o.MaxHeldBytes <= 0 {
		o.MaxHeldBytes = 8 << 20
	}
	if o.Loads <= 0 {
		o.Loads = 4
	}
	if o.RetryMin <= 0 {
		o.RetryMin = 50 * time.Millisecond
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 5 * time.Second
	}
}

// Kind of an event.
type Kind uint8

// The kinds of events.
const (
	Loaded   Kind = iota // the shard runs
	Lost                 // the machine was thrown away; Err says why
	Failed               // loading, a snapshot or the removal of old records failed and is tried again; Err says why
	Damaged              // records are missing in the partition: the state is not complete; Err says which
	Snapshot             // a snapshot is durable
	Trimmed              // everything before the snapshot is removed
)

// Event is something that an operator may want to read.
type Event struct {
	Kind    Kind
	Shard   int32
	Epoch   int32
	Records int64
	Bytes   int64
	Took    time.Duration
	Err     error
}

// Journal is all shards of one internal topic.
type Journal[M Machine] struct {
	o      Options[M]
	ctx    context.Context
	cancel context.CancelFunc
	loops  sync.WaitGroup
	shards []*shard[M]

	loads     chan struct{} // semaphores
	snapshots chan struct{}
}

// New starts a journal. Close stops it.
func New[M Machine](o Options[M]) *Journal[M] {
	o.setDefaults()
	j := &Journal[M]{o: o, loads: make(chan struct{}, o.Loads), snapshots: make(chan struct{}, 1)}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	for i := range o.Shards {
		s := &shard[M]{j: j, index: i, wake: make(chan struct{}, 1)}
		j.shards = append(j.shards, s)
	}
	for _, s := range j.shards {
		j.loops.Go(s.loop)
	}
	return j
}

// Close throws all machines away and waits for everything that was started. Operations get ErrClosed.
func (j *Journal[M]) Close() {
	j.cancel()
	j.loops.Wait()
}

// Shards returns how many shards there are.
func (j *Journal[M]) Shards() int32 { return j.o.Shards }

// Sync makes every shard look whether its partition has come, gone, or changed its epoch.
func (j *Journal[M]) Sync() {
	for _, s := range j.shards {
		s.kick()
	}
}

// Do runs op on a shard's machine and appends what it led to. It returns as soon as that is done, which may be before
// the records are durable: Step.Done tells. An error means that op did not run.
func (j *Journal[M]) Do(shard int32, op func(m M, now time.Time) Step) error {
	if shard < 0 || shard >= j.o.Shards {
		return ErrNoShard
	}
	return j.shards[shard].do(op)
}

// Each runs op on every machine that is loaded.
func (j *Journal[M]) Each(op func(shard int32, m M, now time.Time) Step) {
	for _, s := range j.shards {
		// A shard that isn't loaded is left out; so is one that waits for the disk, as its machine is full.
		_ = s.do(func(m M, now time.Time) Step { return op(s.index, m, now) })
	}
}

// Look runs fn on a shard's machine without waiting for anything: fn may see what isn't durable, and must change
// nothing. It is for metrics.
func (j *Journal[M]) Look(shard int32, fn func(m M)) error {
	if shard < 0 || shard >= j.o.Shards {
		return ErrNoShard
	}
	s := j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil || s.cur.dead != nil {
		return ErrLoading
	}
	fn(s.cur.m)
	return nil
}

// Status returns nil when the shard runs, else the error that Do would give.
func (j *Journal[M]) Status(shard int32) error {
	if shard < 0 || shard >= j.o.Shards {
		return ErrNoShard
	}
	s := j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.admit()
	return err
}
