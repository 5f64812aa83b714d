package frame

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"strconv"
)

// TopicID is the unique id of a topic: the 16 bytes of Kafka's topic id. The zero
// value is no topic.
type TopicID [16]byte

// String returns the id as Kafka writes it: 22 characters of URL-safe base64
// without padding.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// IsZero reports whether t names no topic.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// Compare orders ids by their bytes: -1, 0 or +1.
func (t TopicID) Compare(o TopicID) int { return bytes.Compare(t[:], o[:]) }

// MarshalText returns [TopicID.String], so that ids are readable in JSON.
func (t TopicID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *TopicID) UnmarshalText(b []byte) error {
	id, err := ParseTopicID(string(b))
	if err != nil {
		return err
	}
	*t = id
	return nil
}

// ParseTopicID reads the form that [TopicID.String] writes. Only the one canonical
// spelling of an id is accepted.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	if len(s) != 22 {
		return t, fmt.Errorf("parse topic id %.40q: want 22 characters, have %d", s, len(s))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return t, fmt.Errorf("parse topic id %q: %w", s, err)
	}
	copy(t[:], b)
	return t, nil
}

// PartitionID names a partition for all floors above the protocol: topic names may
// come back for another topic, ids never do.
type PartitionID struct {
	Topic     TopicID
	Partition int32
}

// String returns "topicid/partition".
func (p PartitionID) String() string {
	return p.Topic.String() + "/" + strconv.FormatInt(int64(p.Partition), 10)
}

// Compare orders by topic id, then by partition: -1, 0 or +1.
func (p PartitionID) Compare(o PartitionID) int {
	if c := p.Topic.Compare(o.Topic); c != 0 {
		return c
	}
	return cmp.Compare(p.Partition, o.Partition)
}

// ParsePartitionID reads the form that [PartitionID.String] writes.
func ParsePartitionID(s string) (PartitionID, error) {
	if len(s) < 24 || s[22] != '/' {
		return PartitionID{}, fmt.Errorf("parse partition id %.60q: want <topic id>/<number>", s)
	}
	t, err := ParseTopicID(s[:22])
	if err != nil {
		return PartitionID{}, err
	}
	n, err := strconv.ParseInt(s[23:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s[23:] {
		return PartitionID{}, fmt.Errorf("parse partition id %.60q: bad partition number", s)
	}
	return PartitionID{Topic: t, Partition: int32(n)}, nil
}
