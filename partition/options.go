package partition

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// Cluster is what a Set needs of the cluster's state: it reports what became of its assignments.
type Cluster interface {
	// Transition moves assignments between states; it fails for those whose owner or epoch has changed.
	Transition(ctx context.Context, ts []cluster.Transition) error
	// MarkWarm tells the owners of partitions that are moved to target that it is ready for them.
	MarkWarm(ctx context.Context, target int32, ws []cluster.Warmed) error
	// Lives asks etcd itself, not an image of it, whether a run of a broker is registered.
	Lives(ctx context.Context, broker int32, incarnation string) (bool, error)
	// FinishDelete frees the name of a topic whose partitions have all left the bucket's live set.
	FinishDelete(ctx context.Context, id frame.TopicID) error
}

// SetOptions are the settings of a broker's partitions. Zero durations and sizes take the defaults given here.
type SetOptions struct {
	Dir         string          // directory that holds the index (below <Dir>/index unless Index.Dir is set) and the log (below <Dir>/log)
	Log         segment.Options // Dir empty: <Dir>/log
	Index       index.Options   // Dir empty: <Dir>/index
	Archive     *tier.Archive
	Cluster     Cluster
	Broker      int32
	Incarnation string       // unique id of this run of the broker
	BootID      string       // id of the machine's boot: tells a process crash from a reboot
	Now         func() int64 // wall clock, ms
	OnEvent     func(Event)  // what an operator should read; called from any goroutine, must not block

	// WAL is this run's WAL stream, of which object partitions make use; nil: durability object is taken for sync.
	WAL            *wal.Options
	StreamInterval time.Duration // a batch waits so long for others before it is uploaded; default 100 ms
	StreamBytes    int64         // or until there are so many bytes; default 4 MiB

	DiskBudget        int64         // bytes of local log at which reclaim must have freed files; default 20 GiB
	MaxReplay         int64         // bytes of log that a restart after a crash has to read, about; default 512 MiB
	RollInterval      time.Duration // how often pending partitions are looked at; default 1 s
	RollWorkers       int           // partitions rolled at once; default 2
	RollMinBytes      int64         // segment.ms applies from so many pending bytes; default 4 MiB
	RollMaxAge        time.Duration // anything older is rolled whatever its size; default 1 h
	SwapDelay         time.Duration // a head swap may wait so long for further objects of a busy partition; 0: each round swaps
	MaintainInterval  time.Duration // retention, merge and sweep; default 1 min
	SweepDelay        time.Duration // from dropped to deleted; default 10 min
	SweepInterval     time.Duration // full sweep of a partition for orphans; default 6 h
	ProducerExpiry    time.Duration // an idempotent producer is forgotten after so much idleness; default 24 h
	OpenWorkers       int           // heads fetched at once while partitions recover; default 64
	BucketCallTimeout time.Duration // deadline of one roll, swap or cold read; default 60 s
	DrainPatience     time.Duration // a partition that is moved may refuse writes so long before its owner gives up and goes on serving; default 15 s
	RetryPause        time.Duration // before something that failed is tried again, doubled where that goes on; default 1 s
}

func (o *SetOptions) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.StreamInterval, 100*time.Millisecond)
	def(&o.RollInterval, time.Second)
	def(&o.RollMaxAge, time.Hour)
	def(&o.MaintainInterval, time.Minute)
	def(&o.SweepDelay, 10*time.Minute)
	def(&o.SweepInterval, 6*time.Hour)
	def(&o.ProducerExpiry, 24*time.Hour)
	def(&o.BucketCallTimeout, time.Minute)
	def(&o.RetryPause, time.Second)
	def(&o.DrainPatience, 15*time.Second)
	if o.StreamBytes <= 0 {
		o.StreamBytes = 4 << 20
	}
	if o.DiskBudget <= 0 {
		o.DiskBudget = 20 << 30
	}
	if o.MaxReplay <= 0 {
		o.MaxReplay = 512 << 20
	}
	if o.RollWorkers <= 0 {
		o.RollWorkers = 2
	}
	if o.RollMinBytes <= 0 {
		o.RollMinBytes = 4 << 20
	}
	if o.OpenWorkers <= 0 {
		o.OpenWorkers = 64
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
}

// Level says how much an event matters to an operator.
type Level uint8

// The levels, as a logger names them.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Event is one line for the operator. Partition is the zero value where the event concerns the whole broker.
type Event struct {
	Level     Level
	Message   string
	Topic     string
	Partition frame.PartitionID
	Err       error
	Loss      *Loss // not nil: records of the partition may be lost
}

// Loss says where a partition goes on after a loss of its local log, and what is left of it.
type Loss struct {
	Start      int64 // first offset that is left
	End        int64 // first offset that was not recovered: what anybody has seen from here on is gone
	Next       int64 // where the partition goes on; [End, Next) stays void
	Newest     int64 // append time of the newest record that was recovered, ms; -1: there is none, or it isn't known
	Durability cluster.Durability
}

// State of a partition on this broker (design, section 9).
type State uint8

// The states; only Writing takes writes, only Writing and Draining serve reads.
const (
	Closed State = iota
	Starting
	Recovering
	Writing
	Draining
	Failed
)

func (s State) String() string {
	return [...]string{"closed", "starting", "recovering", "writing", "draining", "failed"}[s]
}

// Offsets is a consistent view of a partition's offsets.
type Offsets struct {
	Start      int64 // first readable offset
	LocalStart int64 // first offset with a local copy
	Tiered     int64 // first offset not yet covered by the head
	Durable    int64 // high watermark: first offset that isn't safe at the topic's durability
	End        int64 // next offset to be assigned
	Epoch      int32
}

// Place says where a read at an offset is served from.
type Place uint8

// Places of an offset.
const (
	Tail       Place = iota // nothing there yet: a read waits
	Hot                     // in the local log
	Cold                    // in the bucket
	OutOfRange              // before the start or behind the durable offset
)

// AppendOptions qualify one append.
type AppendOptions struct {
	Epoch int32 // leader epoch the client believes in; -1 for any
	Now   int64 // ms
	// Exact: the batch is refused with ErrMoved unless its first offset is Base. With Epoch it makes the append a
	// compare-and-append: nobody else has written since the caller knew the end.
	Exact bool
	Base  int64
}

// ReadRequest asks for whole batches from the one that holds Offset.
type ReadRequest struct {
	Offset     int64
	MaxBytes   int
	AtLeastOne bool // the first batch is returned even if it is larger than MaxBytes
}

// Batches is the answer to a read: whole batches as stored, in offset order, possibly cut into several slices each.
// The slices stay valid until Release, which must be called exactly once (nil-safe on the zero value).
type Batches struct {
	Slices [][]byte
	Bytes  int
	Next   int64 // offset behind the last batch; the requested offset when empty
	owner  releaser
}

type releaser interface{ release() }

type releaseFunc func()

func (f releaseFunc) release() { f() }

// NewBatches makes an answer out of slices that somebody else owns; release is called once by Release.
func NewBatches(slices [][]byte, bytes int, next int64, release func()) Batches {
	return Batches{Slices: slices, Bytes: bytes, Next: next, owner: releaseFunc(release)}
}

// Release gives the memory behind Slices back.
func (b *Batches) Release() {
	if o := b.owner; o != nil {
		b.owner, b.Slices = nil, nil
		o.release()
	}
}

// TimeResult is the answer to a lookup by time. Offset and Timestamp are -1 when nothing was found.
type TimeResult struct {
	Offset    int64
	Timestamp int64
	Epoch     int32
	Found     bool
}

// EpochStart is the first offset of a leader epoch.
type EpochStart = tier.EpochStart

// Stats describes a partition for tools and metrics.
type Stats struct {
	ID           frame.PartitionID
	Topic        string
	State        State
	Reason       string // of Failed
	Offsets      Offsets
	HeadVersion  int64
	PendingBytes int64 // durable bytes not yet in the bucket
	PendingSince int64 // append time of the oldest of them, ms; 0 when none
	LocalBytes   int64 // batch bytes in the local log, an estimate after a restart
	Extents      int
	ArchiveBytes int64
}
