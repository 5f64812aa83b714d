package kafka

// FetchRequest is a decoded Fetch request, versions 4 to 18. Fields that the version does not
// have get Kafka's defaults. It is made for reuse like ProduceRequest and refers to nothing of
// the body it was decoded from.
type FetchRequest struct {
	// ReplicaID is -1 for consumers; ReplicaEpoch -1 when not sent.
	ReplicaID    int32
	ReplicaEpoch int64
	// ClusterID is nil when not sent.
	ClusterID *string
	// MaxWaitMs, MinBytes, MaxBytes as the client sent them, unchecked.
	MaxWaitMs, MinBytes, MaxBytes int32
	// IsolationLevel is 0 for read_uncommitted, 1 for read_committed.
	IsolationLevel int8
	// SessionID is 0 and SessionEpoch -1 when no session is used (below version 7 always).
	SessionID, SessionEpoch int32
	Topics                  []FetchRequestTopic
	// Forgotten is what leaves the session.
	Forgotten []ForgottenTopic
	// Rack is "" when not sent.
	Rack string

	cluster string
	names   interner
}

// Reset drops oversized memory, for putting the request into a pool.
func (r *FetchRequest) Reset() {
	if cap(r.Topics) > keepTopics {
		r.Topics = nil
	}
	if cap(r.Forgotten) > keepTopics {
		r.Forgotten = nil
	}
	for _, t := range r.Topics[:cap(r.Topics)] {
		if cap(t.Partitions) > keepTopics {
			r.Topics = nil
			break
		}
	}
	r.Topics, r.Forgotten = r.Topics[:0], r.Forgotten[:0]
}

// FetchRequestTopic is a topic of a FetchRequest: by name up to version 12, by id from 13 on.
type FetchRequestTopic struct {
	Name       string
	ID         [16]byte
	Partitions []FetchRequestPartition
}

// FetchRequestPartition is one partition of a FetchRequest.
type FetchRequestPartition struct {
	Index              int32
	CurrentLeaderEpoch int32 // -1 when unknown or below version 9
	Offset             int64
	LastFetchedEpoch   int32 // -1 when unknown or below version 12
	LogStartOffset     int64 // -1 for consumers
	MaxBytes           int32
	// ReplicaDirectoryID and HighWatermark come from followers only; zero and MaxInt64
	// when not sent.
	ReplicaDirectoryID [16]byte
	HighWatermark      int64
}

// ForgottenTopic is a topic that leaves a fetch session, with its partitions.
type ForgottenTopic struct {
	Name       string
	ID         [16]byte
	Partitions []int32
}

// FetchResponse is a Fetch response, versions 4 to 18. Fields that a version does not have are
// left out.
type FetchResponse struct {
	ThrottleMs int32
	// Error is the session's error code; version 7 and up.
	Error int16
	// SessionID is 0 when there is no session; version 7 and up.
	SessionID int32
	Topics    []FetchTopic
	// NodeEndpoints (version 16 and up) tells where the leaders in CurrentLeader are.
	NodeEndpoints []NodeEndpoint
}

// FetchTopic is a topic of a FetchResponse.
type FetchTopic struct {
	Name       string
	ID         [16]byte
	Partitions []FetchPartition
}

// FetchPartition is the answer for one partition.
type FetchPartition struct {
	Index            int32
	Error            int16 // Kafka's error code
	HighWatermark    int64 // -1 when unknown
	LastStableOffset int64 // -1 when unknown
	LogStartOffset   int64 // -1 when unknown; version 5 and up
	// AbortedTransactions is written as null when nil (read_uncommitted).
	AbortedTransactions []AbortedTransaction
	// PreferredReadReplica is -1 for none; version 11 and up.
	PreferredReadReplica int32
	// Records are whole batches in order; they are not copied. None is written as empty,
	// never as null.
	Records [][]byte
	// DivergingEpoch, CurrentLeader, SnapshotID are nil when there is nothing to say;
	// version 12 and up.
	DivergingEpoch *EpochEnd
	CurrentLeader  *Leader
	SnapshotID     *SnapshotID
}

// AbortedTransaction is a transaction whose records a read_committed consumer drops.
type AbortedTransaction struct {
	ProducerID, FirstOffset int64
}

// EpochEnd is the end offset of an epoch.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// SnapshotID names a snapshot.
type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}
