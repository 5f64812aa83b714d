package cluster

import (
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
)

// Sentinels to act on; test with errors.Is.
var (
	// ErrTopicExists: the name belongs to a topic (possibly one that is being deleted).
	ErrTopicExists = errors.New("topic already exists")
	// ErrTopicCollision: a topic exists whose name differs in '.' and '_' only.
	ErrTopicCollision = errors.New("topic name collides with an existing topic")
	// ErrTopicDeleting: the topic is being deleted and takes no more changes.
	ErrTopicDeleting = errors.New("topic is being deleted")
	// ErrUnknownTopic: no topic has this id.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrInvalidTopicName: the name breaks Kafka's rules; see ValidTopicName.
	ErrInvalidTopicName = errors.New("invalid topic name")
	// ErrInvalidPartitions: the number of partitions is not acceptable.
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrInvalidConfig: wrapped by every *ConfigError.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrFenced: owner, epoch or state of a partition is not what the caller
	// believes; wrapped by every *FencedError.
	ErrFenced = errors.New("fenced by a newer assignment")
	// ErrNotLeader: the caller's controller term has ended.
	ErrNotLeader = errors.New("controller term has ended")
	// ErrSessionLost: the lease has ended.
	ErrSessionLost = errors.New("session lease has ended")
	// ErrBrokerIDInUse: a living broker with another identity has this id.
	ErrBrokerIDInUse = errors.New("broker id is in use by another broker")
	// ErrBrokerRemoved: operators have removed the broker from the cluster.
	ErrBrokerRemoved = errors.New("broker was removed from the cluster")
	// ErrInvalidMove: a move that can not be carried out; the text says why.
	ErrInvalidMove = errors.New("invalid move")
	// ErrOtherCluster: etcd holds the state of another cluster.
	ErrOtherCluster = errors.New("etcd belongs to another cluster")
	// ErrSchema: etcd holds state written by a newer, incompatible version.
	ErrSchema = errors.New("cluster state has an unknown schema version")
	// ErrNoCluster: etcd holds no cluster, and one was expected; see Options.Existing.
	ErrNoCluster = errors.New("etcd holds no cluster")
	// ErrMember: this etcd member can not take its place in the quorum; the text says
	// what to do.
	ErrMember = errors.New("etcd member can't join its quorum")
	// ErrInUse: another process has the embedded etcd's directory open.
	ErrInUse = errors.New("etcd directory is in use by another process")
	// ErrDamaged: the embedded etcd's files can't be read; wrapped by every *DamageError.
	ErrDamaged = errors.New("the files of the embedded etcd are damaged")
	// ErrStopped: the embedded etcd could not go on (its disk is full or failed, or its
	// files make no sense) and has stopped.
	ErrStopped = errors.New("the embedded etcd has stopped")
	// ErrCorrupt: a value in etcd can not be decoded; wrapped by every *CorruptError.
	ErrCorrupt = errors.New("corrupt cluster state")
	// ErrConflict: another writer won every attempt; the caller may repeat.
	ErrConflict = errors.New("too many conflicting changes")
	// ErrUnavailable: etcd did not answer (deadline, no quorum, no space).
	ErrUnavailable = errors.New("cluster state is unavailable")
	// ErrClosed: the Client is closed.
	ErrClosed = errors.New("cluster client is closed")
)

// ConfigError says which setting was refused and why, in Kafka's words, so that
// it can be sent to clients as it is (INVALID_CONFIG).
type ConfigError struct {
	Key, Value, Msg string
}

// Error returns Kafka's text.
func (e *ConfigError) Error() string { return e.Msg }

// Unwrap makes errors.Is(err, ErrInvalidConfig) true.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// FencedError lists the partitions whose change lost, sorted; changes of other
// partitions in the same call were made.
type FencedError struct {
	Lost []frame.PartitionID
}

// Error names at most three partitions.
func (e *FencedError) Error() string {
	n := min(len(e.Lost), 3)
	s := fmt.Sprintf("%v: %d partitions", ErrFenced, len(e.Lost))
	for _, id := range e.Lost[:n] {
		s += " " + id.String()
	}
	if n < len(e.Lost) {
		s += " ..."
	}
	return s
}

// Unwrap makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Unwrap() error { return ErrFenced }

// CorruptError names a key in etcd whose value can not be understood.
type CorruptError struct {
	Key, Hint string
}

// Error names the key and what is wrong with its value.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: key %q: %s", ErrCorrupt, e.Key, e.Hint)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }
