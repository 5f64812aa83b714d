package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/journal"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// rule maps an error of a lower floor to Kafka's code.
type rule struct {
	err  error
	kafk *kerr.Error
}

// rules is the only map from our errors to Kafka's. The first match wins; anything else is UNKNOWN_SERVER_ERROR.
var rules = []rule{
	// First: they wrap what a partition said, which is not about the client's partition.
	{journal.ErrLoading, kerr.CoordinatorLoadInProgress},
	{journal.ErrOverloaded, kerr.CoordinatorNotAvailable},
	{journal.ErrNotCoordinator, kerr.NotCoordinator},
	{journal.ErrClosed, kerr.NotCoordinator},
	{journal.ErrNoShard, kerr.NotCoordinator},

	{partition.ErrNotOwner, kerr.NotLeaderForPartition},
	{partition.ErrClosing, kerr.NotLeaderForPartition},
	{partition.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{partition.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{partition.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{partition.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{partition.ErrDuplicateSequence, kerr.DuplicateSequenceNumber},
	{partition.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{partition.ErrStorage, kerr.KafkaStorageError},
	{partition.ErrUnavailable, kerr.KafkaStorageError},
	{partition.ErrCorrupt, kerr.KafkaStorageError},

	{batch.ErrMagic, kerr.UnsupportedForMessageFormat},
	{batch.ErrTooLarge, kerr.MessageTooLarge},
	{batch.ErrTimestamp, kerr.InvalidTimestamp},
	{batch.ErrCodec, kerr.UnsupportedCompressionType},
	{batch.ErrCount, kerr.InvalidRecord},
	{batch.ErrRecord, kerr.InvalidRecord},
	{batch.ErrCRC, kerr.CorruptMessage},
	{batch.ErrShort, kerr.CorruptMessage},

	{cluster.ErrTopicDeleting, kerr.TopicAlreadyExists},
	{cluster.ErrTopicExists, kerr.TopicAlreadyExists},
	{cluster.ErrTopicCollision, kerr.InvalidTopicException},
	{cluster.ErrInvalidTopicName, kerr.InvalidTopicException},
	{cluster.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{cluster.ErrInvalidPartitions, kerr.InvalidPartitions},
	{cluster.ErrInvalidConfig, kerr.InvalidConfig},
	{cluster.ErrInvalidMove, kerr.InvalidReplicaAssignment},
	{cluster.ErrConflict, kerr.RequestTimedOut},
	{cluster.ErrUnavailable, kerr.RequestTimedOut},
	{cluster.ErrClosed, kerr.BrokerNotAvailable},

	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{kafka.ErrShutdown, kerr.BrokerNotAvailable},
	{kafka.ErrClosed, kerr.NetworkException},
	{context.Canceled, kerr.RequestTimedOut},
}

// code returns Kafka's error code for an error, 0 for nil. An error that already is Kafka's keeps its code.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Code
	}
	for i := range rules {
		if errors.Is(err, rules[i].err) {
			return rules[i].kafk.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// fault is a Kafka error with a text for the client.
type fault struct {
	kafk *kerr.Error
	msg  string
}

// Error returns the text for the client.
func (f *fault) Error() string { return f.msg }

// Unwrap gives the Kafka error.
func (f *fault) Unwrap() error { return f.kafk }

// refuse makes an error with the given code and text.
func refuse(k *kerr.Error, msg string) error { return &fault{kafk: k, msg: msg} }

// codeAndText returns the code of an error and the text that goes with it, nil for no error.
func codeAndText(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	if k, plain := err.(*kerr.Error); plain {
		return k.Code, &k.Description
	}
	msg := err.Error()
	return code(err), &msg
}
