package kafka

// ProduceRequest is a decoded Produce request, versions 3 to 13.
//
// It is made for reuse: DecodeProduce keeps the capacity of all slices and the topic names it
// has seen. Records are slices of the body given to DecodeProduce and live as long as that.
type ProduceRequest struct {
	// TransactionalID is nil when null; valid until the next DecodeProduce.
	TransactionalID *string
	Acks            int16
	TimeoutMs       int32
	Topics          []ProduceTopic

	txn   string
	names interner
}

// keepTopics is how many topics (and partitions of each) a request keeps memory for over Reset.
const keepTopics = 1024

// Reset drops all references to the decoded body and oversized memory, for putting the request
// into a pool.
func (r *ProduceRequest) Reset() {
	r.TransactionalID, r.txn = nil, ""
	all := r.Topics[:cap(r.Topics)]
	if len(all) > keepTopics {
		all = nil
	}
	for i := range all {
		if cap(all[i].Partitions) > keepTopics {
			all[i].Partitions = nil
		}
		clear(all[i].Partitions[:cap(all[i].Partitions)])
	}
	r.Topics = all[:0]
}

// ProduceTopic is a topic of a ProduceRequest: by name up to version 12, by id from 13 on.
type ProduceTopic struct {
	Name       string
	ID         [16]byte
	Partitions []ProducePartition
}

// ProducePartition is what a producer sends for one partition.
type ProducePartition struct {
	Index int32
	// Records is nil when null. Unchecked bytes: normally one record batch.
	Records []byte
}

// ProduceResponse is a Produce response, versions 3 to 13. Fields that a version does not have
// are left out.
type ProduceResponse struct {
	Topics     []ProduceTopicResult
	ThrottleMs int32
	// NodeEndpoints (version 10 and up) tells where the leaders in CurrentLeader are.
	NodeEndpoints []NodeEndpoint
}

// ProduceTopicResult is a topic of a ProduceResponse.
type ProduceTopicResult struct {
	Name       string
	ID         [16]byte
	Partitions []ProducePartitionResult
}

// ProducePartitionResult is the answer for one partition.
type ProducePartitionResult struct {
	Index      int32
	Error      int16 // Kafka's error code
	BaseOffset int64 // -1 with an error
	// LogAppendTime is in milliseconds, -1 unless the topic has LogAppendTime.
	LogAppendTime int64
	// LogStart is the partition's start offset, -1 when unknown; version 5 and up.
	LogStart int64
	// RecordErrors and ErrorMessage: version 8 and up.
	RecordErrors []RecordError
	ErrorMessage *string
	// CurrentLeader is nil unless the client should go elsewhere; version 10 and up.
	CurrentLeader *Leader
}

// RecordError tells which record of a batch was refused.
type RecordError struct {
	Index   int32
	Message *string
}

// Leader is a partition's leader and its epoch, as a hint to a client that asked elsewhere.
type Leader struct {
	ID, Epoch int32
}

// NodeEndpoint is a broker's address.
type NodeEndpoint struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}
