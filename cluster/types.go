package cluster

import (
	"slices"

	"github.com/tierbroker/tierbroker/frame"
)

// Limits of what the cluster state accepts.
const (
	// MaxPartitionsPerTopic bounds one topic.
	MaxPartitionsPerTopic = 100_000
	// ShardPartitions is how many partitions the controller puts into one value.
	ShardPartitions = 500
	// NoBroker is the owner of a partition that nobody owns.
	NoBroker int32 = -1
	// NoEpoch is the epoch of a partition that was never started.
	NoEpoch int32 = -1
)

// State is where a partition stands between two owners.
type State uint8

// The states; see the package comment for who writes which. The numbers are
// stored in etcd and never change.
const (
	Unassigned State = iota // nobody owns it
	Starting                // the controller chose an owner and raised the epoch
	Recovering              // the owner claims the head and brings its log in order
	Writing                 // the owner serves reads and writes
	Draining                // the owner refuses writes and brings its tail into the bucket
	Failed                  // the owner can not serve it; retried with back-off
	Deleted                 // the head is a tombstone; the controller removes the record
	numStates
)

var stateNames = [numStates]string{
	"Unassigned", "Starting", "Recovering", "Writing", "Draining", "Failed", "Deleted",
}

// String returns the state's name.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "Invalid"
}

// ownerMoves lists what the owner of a partition may write. Everything else is
// the controller's (Starting but for a hand-over, and the removal of Deleted ones).
var ownerMoves = [numStates][]State{
	Starting:   {Recovering, Writing, Failed, Unassigned, Deleted},
	Recovering: {Writing, Failed, Unassigned, Deleted},
	Writing:    {Draining, Failed, Deleted},
	Draining:   {Unassigned, Writing, Failed, Deleted, Starting},
	Failed:     {Unassigned, Deleted},
}

// OwnerMay reports whether the owner may take a partition from one state to another.
// Starting is reached from Draining only, by Transition.HandOver.
func OwnerMay(from, to State) bool {
	return from < numStates && slices.Contains(ownerMoves[from], to)
}

// Assignment says who owns a partition.
type Assignment struct {
	Owner            int32  // broker id, NoBroker when Unassigned
	OwnerIncarnation string // the run of the owner this was written for
	Epoch            int32  // number of the ownership, NoEpoch before the first
	State            State
	Target           int32  // broker a planned move goes to, NoBroker otherwise
	TargetSince      int64  // ms since 1970 when Target was chosen, 0 without one
	Failures         int32  // consecutive failures since it was last Writing
	FailedAt         int64  // ms since 1970 of the last failure, for the back-off only
	Reason           string // why it failed, for operators; at most MaxReason bytes

	// Safe: everything of this partition that was acknowledged or visible is in the
	// bucket (data objects, or a WAL stream that its head names), so that another
	// broker may take it over when the owner's lease has ended. True from its first
	// placement on; then set and cleared by the owner only; a new owner inherits it.
	Safe bool
	// Warm: the target has loaded what it needs and the owner may drain now. Written
	// by the target only (MarkWarm), cleared by every change of owner or target.
	Warm bool
	// Jump: records that somebody saw may be lost, so whoever enters Writing next goes
	// on at the head's ceiling. Set by the controller when it forces a partition away
	// from an owner that did not release it, kept by every further Starting, cleared
	// when an owner enters Writing.
	Jump bool
	// Unready is the target of a move that the controller took back at UnreadyAt (ms since
	// 1970, 0: there was none) because it was not warm in time. Other targets are chosen
	// first, for a while. Cleared by every Starting.
	Unready   int32
	UnreadyAt int64
	// Placed: an operator said that it is to be at this owner (MoveWish.Keep), and the
	// automatic rebalance leaves it there. Set by the controller, kept when the owner
	// restarts, cleared when another broker gets it.
	Placed bool
}

// MaxReason bounds Assignment.Reason; longer texts are cut.
const MaxReason = 160

// Topic is one topic. It must not be changed: it is shared by many images.
type Topic struct {
	Name       string
	ID         frame.TopicID
	Partitions int32
	Config     TopicConfig       // typed, defaults of the broker applied
	Overrides  map[string]string // settings of this topic, as given
	Internal   bool
	Deleting   bool  // no new writes; owners put tombstones and report Deleted
	CreatedAt  int64 // ms since 1970
	DeletedAt  int64 // ms since 1970 when Deleting, 0 otherwise
	Revision   int64 // etcd revision of the record
	// Version counts the record's changes, from 1; catalog and heads name it.
	Version int64
	// ConfigErr is set when etcd holds overrides this version does not accept;
	// the default is used for those.
	ConfigErr error
}

// DeletedTopic is a topic that is gone for clients and whose objects wait for
// the sweep of the bucket.
type DeletedTopic struct {
	Name       string        `json:"name"`
	ID         frame.TopicID `json:"id"`
	Partitions int32         `json:"partitions"`
	DeletedAt  int64         `json:"deletedAt"` // ms since 1970
}

// Broker is one living broker.
type Broker struct {
	ID          int32  `json:"id"`
	Incarnation string `json:"incarnation"` // unique id of this run, at most 64 bytes
	// Identity is the unique id of the broker's data directory. A new run with
	// the same identity takes the registration over at once, another one is refused.
	Identity string `json:"identity,omitempty"`
	Host     string `json:"host"` // as the operator wrote it, for clients
	Port     int32  `json:"port"`
	// Listeners are further advertised addresses by listener name.
	Listeners []Endpoint `json:"listeners,omitempty"`
	AdminURL  string     `json:"adminUrl,omitempty"`
	PeerURL   string     `json:"peerUrl,omitempty"`
	Rack      string     `json:"rack,omitempty"` // empty: none
	Labels    []string   `json:"labels,omitempty"`
	Roles     []string   `json:"roles,omitempty"`
	Weight    float64    `json:"weight,omitempty"`   // share of partitions relative to others, 0 counts as 1
	Draining  bool       `json:"draining,omitempty"` // gets no new partitions
	Version   string     `json:"version,omitempty"`
	StartedAt int64      `json:"startedAt,omitempty"` // ms since 1970
	Lease     int64      `json:"-"`                   // etcd lease; set by Register
}

// Endpoint is an advertised address of one listener.
type Endpoint struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// LabelCoordinator reserves a broker for internal topics.
const LabelCoordinator = "coordinator"

// OwnsPartitions reports whether the process has the role of a broker.
func (b *Broker) OwnsPartitions() bool {
	return len(b.Roles) == 0 || slices.Contains(b.Roles, "broker")
}

// HasLabel reports whether the broker carries a label.
func (b *Broker) HasLabel(l string) bool { return slices.Contains(b.Labels, l) }

// TopicSpec describes a topic to create.
type TopicSpec struct {
	Name       string
	ID         frame.TopicID // zero: a random one
	Partitions int32
	Configs    map[string]string
	Internal   bool
}

// Transition is a change that the owner of a partition asks for: of its state, of
// Safe, or both.
type Transition struct {
	ID               frame.PartitionID
	Owner            int32
	OwnerIncarnation string
	Epoch            int32
	From, To         State  // equal when only Safe changes
	Reason           string // for Failed
	At               int64  // ms since 1970, for Failed
	Safe             *bool  // nil: unchanged
	// HandOver: from Draining to Starting under Epoch+1, at the broker that is the
	// partition's Target at that moment; it loses when the target is another one by then.
	HandOver       bool
	NewOwner       int32  // with HandOver: must be the target
	NewIncarnation string // with HandOver: the run of the target that takes over
}

// Warmed says that a target has loaded what it needs of a partition, and which
// ownership it has looked at.
type Warmed struct {
	ID               frame.PartitionID
	Owner            int32
	OwnerIncarnation string
	Epoch            int32
}

// Change is an assignment that the controller writes. It is made only while the
// partition's assignment still equals Old.
type Change struct {
	ID     frame.PartitionID
	Exists bool       // false: the partition has no record yet and Old is ignored
	Old    Assignment // as in the image the change was planned on
	New    Assignment
	Remove bool   // remove the record, New is ignored
	Why    string // for logs
}
