package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tierbroker/tierbroker/frame"
)

// schemaVersion is written into meta. A higher one in etcd is refused.
const schemaVersion = 1

// maxRecordBytes bounds every JSON value that is written or read.
const maxRecordBytes = 256 << 10

// Parts of the keys, after the prefix.
const (
	keyMeta         = "meta"
	keyBrokers      = "brokers/"
	keyTopics       = "topics/"
	keyNames        = "names/"
	keyDeleted      = "deleted/"
	keyAssign       = "assign/"
	keyConfig       = "config/default"
	keyBrokerConfig = "config/broker/"
	keyProducers    = "producers"
	keyElection     = "election/"
	keyControllers  = "controllers/"
	keyOperator     = "operator/"
	keyRestore      = "restore"

	wishOfBroker = "broker/" // after keyOperator
	wishOfMove   = "move/"   // likewise
)

// schema makes keys.
type schema struct{ prefix string }

func (s schema) meta() string                    { return s.prefix + keyMeta }
func (s schema) broker(id int32) string          { return s.prefix + keyBrokers + strconv.Itoa(int(id)) }
func (s schema) topic(id frame.TopicID) string   { return s.prefix + keyTopics + id.String() }
func (s schema) name(name string) string         { return s.prefix + keyNames + foldName(name) }
func (s schema) deleted(id frame.TopicID) string { return s.prefix + keyDeleted + id.String() }
func (s schema) shard(n uint32) string           { return fmt.Sprintf("%s%s%08x", s.prefix, keyAssign, n) }
func (s schema) restore() string                 { return s.prefix + keyRestore }
func (s schema) producers() string               { return s.prefix + keyProducers }
func (s schema) brokerWish(id int32) string {
	return s.prefix + keyOperator + wishOfBroker + strconv.Itoa(int(id))
}
func (s schema) moveWish(id frame.PartitionID) string {
	return s.prefix + keyOperator + wishOfMove + id.Topic.String() + "/" + strconv.Itoa(int(id.Partition))
}
func (s schema) candidate(lease int64) string {
	return fmt.Sprintf("%s%s%016x", s.prefix, keyElection, lease)
}
func (s schema) brokerConfig(broker int32) string {
	if broker == DefaultConfig {
		return s.prefix + keyConfig
	}
	return s.prefix + keyBrokerConfig + strconv.Itoa(int(broker))
}

// topicRecord is the value of a topic's key.
type topicRecord struct {
	Name       string            `json:"name"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
	Internal   bool              `json:"internal,omitempty"`
	Deleting   bool              `json:"deleting,omitempty"`
	CreatedAt  int64             `json:"createdAt"`
	DeletedAt  int64             `json:"deletedAt,omitempty"`
	Version    int64             `json:"version"`
}

// nameRecord is the value of a name's key.
type nameRecord struct {
	ID   frame.TopicID `json:"id"`
	Name string        `json:"name"`
}

// encodeRecord returns a JSON value; values over maxRecordBytes are refused, since
// they could not be read back.
func encodeRecord(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode cluster record: %w", err)
	}
	if len(b) > maxRecordBytes {
		return "", fmt.Errorf("%w: record of %d bytes, at most %d are allowed", ErrInvalidConfig, len(b), maxRecordBytes)
	}
	return string(b), nil
}

func decodeRecord(b []byte, v any) error {
	if len(b) > maxRecordBytes {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(b), maxRecordBytes)
	}
	return json.Unmarshal(b, v)
}

func decodeTopic(id frame.TopicID, revision int64, value []byte) (*Topic, error) {
	var r topicRecord
	if err := decodeRecord(value, &r); err != nil {
		return nil, err
	}
	if err := ValidTopicName(r.Name); err != nil {
		return nil, err
	}
	if r.Partitions < 1 || r.Partitions > MaxPartitionsPerTopic {
		return nil, fmt.Errorf("%d partitions", r.Partitions)
	}
	return &Topic{Name: r.Name, ID: id, Partitions: r.Partitions, Overrides: r.Configs, Internal: r.Internal,
		Deleting: r.Deleting, CreatedAt: r.CreatedAt, DeletedAt: r.DeletedAt, Revision: revision, Version: r.Version}, nil
}

func (t *Topic) record() topicRecord {
	return topicRecord{Name: t.Name, Partitions: t.Partitions, Configs: t.Overrides, Internal: t.Internal,
		Deleting: t.Deleting, CreatedAt: t.CreatedAt, DeletedAt: t.DeletedAt, Version: t.Version}
}

// configure fills in the typed settings.
func (t *Topic) configure(brokerDefaults map[string]string) {
	var err error
	if t.Config, err = ParseTopicConfig(t.Overrides, brokerDefaults); err != nil {
		t.ConfigErr = err
		t.Config = typedTopicConfig(t.Overrides, brokerDefaults)
	}
}

func decodeBroker(id int32, lease int64, value []byte) (Broker, error) {
	var b Broker
	if err := decodeRecord(value, &b); err != nil {
		return b, err
	}
	if b.ID != id {
		return b, fmt.Errorf("names broker %d", b.ID)
	}
	if b.Incarnation == "" || len(b.Incarnation) > maxIncarnation {
		return b, fmt.Errorf("incarnation of %d bytes", len(b.Incarnation))
	}
	b.Lease = lease
	return b, nil
}

func decodeMeta(value []byte) (Meta, error) {
	var m Meta
	if err := decodeRecord(value, &m); err != nil {
		return m, err
	}
	if m.ClusterID == "" || m.Incarnation == "" || m.Schema < 1 {
		return m, fmt.Errorf("cluster id, incarnation or schema is missing")
	}
	return m, nil
}

// parseInt32 accepts canonical numbers from 0 only, so that two keys never stand
// for one thing.
func parseInt32(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("bad number %q in the key", s)
	}
	return int32(n), nil
}

func parseShardNumber(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 8 || strings.ToLower(s) != s {
		return 0, fmt.Errorf("bad shard number %q in the key", s)
	}
	return uint32(n), nil
}
