package group

import (
	"iter"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record of the shard's partition. Value nil is a tombstone.
type Record struct{ Key, Value []byte }

// Token names a call under way. It is the caller's: the machine only gives it back.
type Token uint64

// Reply is the answer to the call with the token. Response has the version of the request.
type Reply struct {
	Token    Token
	Response kmsg.Response
}

// Step is all that a call led to.
type Step struct {
	// Records are applied already and are to be appended as one batch. They are the caller's to keep.
	Records []Record
	// Replies are to be sent when Records, and all records of earlier steps, are durable.
	Replies []Reply
}

// Client says who sent a request, for member ids and descriptions.
type Client struct {
	ID   string // client id of the request header
	Host string // as Kafka shows it: "/" and the address
}

// Topic is what the machine needs to know about a topic.
type Topic struct {
	ID         [16]byte
	Name       string
	Partitions int32
}

// Topics is the cluster's topics as a value: what it answers must never change. It must answer without I/O.
type Topics interface {
	ByName(name string) (Topic, bool)
	ByID(id [16]byte) (Topic, bool)
	All() iter.Seq[Topic] // what patterns may match, in any order
}

// Options are the settings of a machine; a zero field has Kafka's default unless it says otherwise.
type Options struct {
	// NewID returns a unique id, as a UUID in Kafka's text form; it becomes part of member ids. Needed.
	NewID func() string

	MinSessionTimeout     time.Duration // group.min.session.timeout.ms, 6 s
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms, 30 min
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms; zero is no delay (Kafka's default is 3 s)
	MaxSize               int           // group.max.size, no limit

	OffsetsRetention       time.Duration // offsets.retention.minutes, 7 days; < 0 keeps offsets for ever
	OffsetsRetentionCheck  time.Duration // offsets.retention.check.interval.ms, 10 min
	MaxOffsetMetadataBytes int           // offset.metadata.max.bytes, 4096
	MaxGroups              int           // groups of this shard, new ones above it get COORDINATOR_NOT_AVAILABLE; 1<<20
	MaxGroupBytes          int           // of what the members of a group say, and their assignments; 8 MiB
	MaxMemberBytes         int           // the same of all groups of this shard; 64 MiB
	ConsumerSessionTimeout time.Duration // group.consumer.session.timeout.ms, 45 s
	ConsumerHeartbeat      time.Duration // group.consumer.heartbeat.interval.ms, 5 s
	ConsumerMaxSize        int           // group.consumer.max.size, no limit
	ConsumerAssignors      []string      // group.consumer.assignors, the first is the default: uniform, range
	ConsumerMigration      Migration     // group.consumer.migration.policy, bidirectional
}

// Migration says between which protocols a live group may change.
type Migration uint8

// The values of group.consumer.migration.policy.
const (
	MigrationBoth Migration = iota
	MigrationUpgrade
	MigrationDowngrade
	MigrationDisabled
)

// Stats counts what a machine holds and has done, for metrics.
type Stats struct {
	Groups     map[State]int // by state
	Offsets    int
	Members    int
	Bytes      int    // what the members say of themselves, and their assignments
	Rebalances uint64 // completed, since New
	Expired    uint64 // offsets that expired, since New
	BadRecords uint64 // records that Apply skipped, since New
}

// State is Kafka's name of a group's state: "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead",
// "Assigning", "Reconciling".
type State string

func (o *Options) setDefaults() {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	duration(&o.MinSessionTimeout, 6*time.Second)
	duration(&o.MaxSessionTimeout, 30*time.Minute)
	duration(&o.OffsetsRetention, 7*24*time.Hour)
	duration(&o.OffsetsRetentionCheck, 10*time.Minute)
	duration(&o.ConsumerSessionTimeout, 45*time.Second)
	duration(&o.ConsumerHeartbeat, 5*time.Second)
	number(&o.MaxSize, math.MaxInt32)
	number(&o.ConsumerMaxSize, math.MaxInt32)
	number(&o.MaxOffsetMetadataBytes, 4096)
	number(&o.MaxGroups, 1<<20)
	number(&o.MaxGroupBytes, 8<<20)
	number(&o.MaxMemberBytes, 64<<20)
	if len(o.ConsumerAssignors) == 0 {
		o.ConsumerAssignors = []string{"uniform", "range"}
	}
}

// noTopics is a cluster nobody has described yet.
type noTopics struct{}

func (noTopics) ByName(string) (Topic, bool) { return Topic{}, false }
func (noTopics) ByID([16]byte) (Topic, bool) { return Topic{}, false }
func (noTopics) All() iter.Seq[Topic]        { return func(func(Topic) bool) {} }
