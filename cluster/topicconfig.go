package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Durability says what acks=all waits for on a topic.
type Durability uint8

// The durabilities of a topic.
const (
	// Sync waits for fdatasync, one for all who wait (group commit).
	Sync Durability = iota
	// Async waits for the page cache; fdatasync follows within half a second.
	Async
	// Object waits for a WAL object in the bucket.
	Object
)

// String returns the value of the setting tierbroker.durability.
func (d Durability) String() string {
	switch d {
	case Sync:
		return "sync"
	case Async:
		return "async"
	case Object:
		return "object"
	}
	return "invalid"
}

// Names of topic settings that code refers to.
const (
	RetentionMs         = "retention.ms"
	RetentionBytes      = "retention.bytes"
	LocalRetentionMs    = "local.retention.ms"
	LocalRetentionBytes = "local.retention.bytes"
	SegmentBytes        = "segment.bytes"
	SegmentMs           = "segment.ms"
	InternalSegment     = "internal.segment.bytes"
	MaxMessageBytes     = "max.message.bytes"
	TimestampType       = "message.timestamp.type"
	TimestampBefore     = "message.timestamp.before.max.ms"
	TimestampAfter      = "message.timestamp.after.max.ms"
	CleanupPolicy       = "cleanup.policy"
	MinInsyncReplicas   = "min.insync.replicas"
	CompressionType     = "compression.type"
	MinCompactionLagMs  = "min.compaction.lag.ms"
	MaxCompactionLagMs  = "max.compaction.lag.ms"
	DeleteRetentionMs   = "delete.retention.ms"
	MinDirtyRatio       = "min.cleanable.dirty.ratio"
	DurabilityConfig    = "tierbroker.durability"
)

// TopicConfig holds the settings of a topic that this broker acts on.
type TopicConfig struct {
	RetentionMs         int64 // ms, -1 for ever
	RetentionBytes      int64 // per partition, -1 unlimited
	LocalRetentionMs    int64 // ms, -2 as RetentionMs, -1 for ever
	LocalRetentionBytes int64 // per partition, -2 as RetentionBytes, -1 unlimited
	SegmentBytes        int64 // pending bytes that start a roll
	SegmentMs           int64 // ms after which a smaller roll is due
	MaxMessageBytes     int32 // largest batch
	LogAppendTime       bool  // the broker stamps records
	TimestampBeforeMaxMs,
	TimestampAfterMaxMs int64 // largest distance from now, ms
	CleanupDelete, CleanupCompact bool
	Durability                    Durability
	MinInsyncReplicas             int32
	CompressionType               string // "producer" keeps what the producer sent
	MinCompactionLagMs            int64
	MaxCompactionLagMs            int64
	DeleteRetentionMs             int64 // ms a tombstone record is kept in a compacted topic
	MinCleanableDirtyRatio        float64
}

const longMax = "9223372036854775807"

func syn(names ...string) []Synonym {
	s := make([]Synonym, len(names))
	for i, n := range names {
		s[i] = Synonym{Name: n}
	}
	return s
}

// TopicConfigDefs lists every topic setting, in the order of their names.
var TopicConfigDefs = []ConfigDef{
	{Name: CleanupPolicy, Type: TypeList, Default: "delete", check: listOf("compact", "delete"), Synonyms: syn("log.cleanup.policy"),
		Doc: "What happens to old records: \"delete\" removes them by retention time and size, \"compact\" keeps the latest record of each key, both may be combined."},
	{Name: "compression.gzip.level", Type: TypeInt, Default: "-1", check: levelOr(-1, 1, 9), Synonyms: syn("compression.gzip.level"),
		Doc: "Compression level for gzip; accepted for compatibility, batches are stored as producers sent them."},
	{Name: "compression.lz4.level", Type: TypeInt, Default: "9", check: between(1, 17), Synonyms: syn("compression.lz4.level"),
		Doc: "Compression level for lz4; accepted for compatibility, batches are stored as producers sent them."},
	{Name: CompressionType, Type: TypeString, Default: "producer", Synonyms: syn(CompressionType),
		check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
		Doc:   "Codec of stored batches. Batches are stored as producers sent them; other values than \"producer\" are accepted for compatibility."},
	{Name: "compression.zstd.level", Type: TypeInt, Default: "3", check: between(-131072, 22), Synonyms: syn("compression.zstd.level"),
		Doc: "Compression level for zstd; accepted for compatibility, batches are stored as producers sent them."},
	{Name: DeleteRetentionMs, Type: TypeLong, Default: "86400000", check: atLeast(0), Synonyms: syn("log.cleaner.delete.retention.ms"),
		Doc: "Time in milliseconds that delete markers are kept in compacted topics."},
	{Name: "file.delete.delay.ms", Type: TypeLong, Default: "60000", check: atLeast(0), Synonyms: syn("log.segment.delete.delay.ms"),
		Doc: "Accepted for compatibility: files and objects go when no reader can still need them."},
	{Name: "flush.messages", Type: TypeLong, Default: longMax, check: atLeast(1), Synonyms: syn("log.flush.interval.messages"),
		Doc: "Accepted for compatibility: tierbroker.durability says when data is forced to disk."},
	{Name: "flush.ms", Type: TypeLong, Default: longMax, check: atLeast(0), Synonyms: syn("log.flush.interval.ms"),
		Doc: "Accepted for compatibility: tierbroker.durability says when data is forced to disk."},
	{Name: "follower.replication.throttled.replicas", Type: TypeList, Default: "", check: throttled,
		Doc: "Accepted for compatibility: there are no follower replicas to throttle."},
	{Name: "index.interval.bytes", Type: TypeInt, Default: "4096", check: atLeast(0), Synonyms: syn("log.index.interval.bytes"),
		Doc: "Accepted for compatibility: every batch has an index entry."},
	{Name: InternalSegment, Type: TypeInt, Default: "", Hidden: true, check: atLeast(1),
		Doc: "As segment.bytes without its lower limit; for tests."},
	{Name: "leader.replication.throttled.replicas", Type: TypeList, Default: "", check: throttled,
		Doc: "Accepted for compatibility: there are no follower replicas to throttle."},
	{Name: LocalRetentionBytes, Type: TypeLong, Default: "-2", check: atLeast(-2), Synonyms: syn("log.local.retention.bytes"),
		Doc: "Bytes of a partition that stay on the broker's disk after they are in the bucket; -2: as retention.bytes, -1: unlimited. The disk budget may ask for less."},
	{Name: LocalRetentionMs, Type: TypeLong, Default: "-2", check: atLeast(-2), Synonyms: syn("log.local.retention.ms"),
		Doc: "Milliseconds that data stays on the broker's disk after it is in the bucket; -2: as retention.ms, -1: for ever. The disk budget may ask for less."},
	{Name: MaxCompactionLagMs, Type: TypeLong, Default: longMax, check: atLeast(1), Synonyms: syn("log.cleaner.max.compaction.lag.ms"),
		Doc: "Longest time in milliseconds a record of a compacted topic stays uncompacted."},
	{Name: MaxMessageBytes, Type: TypeInt, Default: "1048588", check: atLeast(0), Synonyms: syn("message.max.bytes"),
		Doc: "Largest record batch in bytes, after compression."},
	{Name: TimestampAfter, Type: TypeLong, Default: "3600000", check: atLeast(0), Synonyms: syn("log.message.timestamp.after.max.ms"),
		Doc: "How far in milliseconds a record's timestamp may lie after the broker's clock; for message.timestamp.type=CreateTime."},
	{Name: TimestampBefore, Type: TypeLong, Default: longMax, check: atLeast(0), Synonyms: syn("log.message.timestamp.before.max.ms"),
		Doc: "How far in milliseconds a record's timestamp may lie before the broker's clock; for message.timestamp.type=CreateTime."},
	{Name: TimestampType, Type: TypeString, Default: "CreateTime", check: oneOf("CreateTime", "LogAppendTime"), Synonyms: syn("log.message.timestamp.type"),
		Doc: "Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime)."},
	{Name: MinDirtyRatio, Type: TypeDouble, Default: "0.5", check: ratio, Synonyms: syn("log.cleaner.min.cleanable.ratio"),
		Doc: "Share of uncompacted bytes at which a compacted topic is compacted."},
	{Name: MinCompactionLagMs, Type: TypeLong, Default: "0", check: atLeast(0), Synonyms: syn("log.cleaner.min.compaction.lag.ms"),
		Doc: "Shortest time in milliseconds a record of a compacted topic stays uncompacted."},
	{Name: MinInsyncReplicas, Type: TypeInt, Default: "1", check: atLeast(1), Synonyms: syn(MinInsyncReplicas),
		Doc: "Accepted for compatibility: each partition has one owner, safety comes from tierbroker.durability."},
	{Name: "preallocate", Type: TypeBoolean, Default: "false", Synonyms: syn("log.preallocate"),
		Doc: "Accepted for compatibility: files of the commit log are always preallocated."},
	{Name: "remote.log.copy.disable", Type: TypeBoolean, Default: "false",
		Doc: "Accepted for compatibility: data is always copied to the bucket."},
	{Name: "remote.log.delete.on.disable", Type: TypeBoolean, Default: "false",
		Doc: "Accepted for compatibility: the bucket can not be disabled for a topic."},
	{Name: "remote.storage.enable", Type: TypeBoolean, Default: "true",
		Doc: "Accepted for compatibility: every topic lives in the bucket."},
	{Name: RetentionBytes, Type: TypeLong, Default: "-1", Synonyms: syn("log.retention.bytes"),
		Doc: "Bytes of a partition, over disk and bucket, beyond which the oldest are removed; -1: unlimited."},
	{Name: RetentionMs, Type: TypeLong, Default: "604800000", check: atLeast(-1),
		Synonyms: []Synonym{{Name: "log.retention.ms"}, {Name: "log.retention.minutes", Scale: 60_000}, {Name: "log.retention.hours", Scale: 3_600_000}},
		Doc:      "Milliseconds after which records are removed, from disk and bucket; -1: never."},
	{Name: SegmentBytes, Type: TypeInt, Default: "67108864", check: atLeast(1 << 20), Synonyms: syn("log.segment.bytes"),
		Doc: "Bytes of a partition that are rolled into one object of the bucket."},
	{Name: "segment.index.bytes", Type: TypeInt, Default: "10485760", check: atLeast(4), Synonyms: syn("log.index.size.max.bytes"),
		Doc: "Accepted for compatibility: the index has no fixed size."},
	{Name: "segment.jitter.ms", Type: TypeLong, Default: "0", check: atLeast(0),
		Synonyms: []Synonym{{Name: "log.roll.jitter.ms"}, {Name: "log.roll.jitter.hours", Scale: 3_600_000}},
		Doc:      "Accepted for compatibility: rolls are spread by the broker."},
	{Name: SegmentMs, Type: TypeLong, Default: "300000", check: atLeast(1),
		Synonyms: []Synonym{{Name: "log.roll.ms"}, {Name: "log.roll.hours", Scale: 3_600_000}},
		Doc:      "Milliseconds after which pending data of at least 4 MiB is rolled into an object."},
	{Name: DurabilityConfig, Type: TypeString, Default: "sync", check: oneOf("sync", "async", "object"), Synonyms: syn(DurabilityConfig),
		Doc: "What acks=all waits for: \"sync\" until the data is forced to disk, \"async\" until it is in the page cache (forced within 500 ms), " +
			"\"object\" until it is also in the bucket, so that another broker can go on when the machine is lost."},
	{Name: "unclean.leader.election.enable", Type: TypeBoolean, Default: "false", Synonyms: syn("unclean.leader.election.enable"),
		Doc: "Accepted for compatibility: a partition without its owner waits for it or is moved by the operator."},
}

var topicDefs = defsByName(TopicConfigDefs)

// TopicConfigDef returns the definition of a topic setting, nil when there is none.
func TopicConfigDef(name string) *ConfigDef { return topicDefs[name] }

// ParseTopicConfig checks a topic's overrides and returns its typed settings.
// What is not overridden comes from brokerDefaults, which has broker settings by
// their own names (log.retention.ms), and then from the built-in defaults. Faulty
// broker defaults are ignored: they were checked when they were set. The error
// is a *ConfigError.
func ParseTopicConfig(overrides, brokerDefaults map[string]string) (TopicConfig, error) {
	if err := checkValues(topicDefs, "topic", overrides); err != nil {
		return TopicConfig{}, err
	}
	c := typedTopicConfig(overrides, brokerDefaults)
	return c, c.check()
}

// typedTopicConfig ignores values that do not parse.
func typedTopicConfig(overrides, brokerDefaults map[string]string) TopicConfig {
	g := getter{overrides: overrides, broker: brokerDefaults}
	policy := SplitList(g.str(CleanupPolicy))
	c := TopicConfig{
		RetentionMs:            g.num(RetentionMs),
		RetentionBytes:         g.num(RetentionBytes),
		LocalRetentionMs:       g.num(LocalRetentionMs),
		LocalRetentionBytes:    g.num(LocalRetentionBytes),
		SegmentBytes:           g.num(SegmentBytes),
		SegmentMs:              g.num(SegmentMs),
		MaxMessageBytes:        int32(min(g.num(MaxMessageBytes), math.MaxInt32)),
		LogAppendTime:          g.str(TimestampType) == "LogAppendTime",
		TimestampBeforeMaxMs:   g.num(TimestampBefore),
		TimestampAfterMaxMs:    g.num(TimestampAfter),
		MinInsyncReplicas:      int32(min(g.num(MinInsyncReplicas), math.MaxInt32)),
		CompressionType:        g.str(CompressionType),
		MinCompactionLagMs:     g.num(MinCompactionLagMs),
		MaxCompactionLagMs:     g.num(MaxCompactionLagMs),
		DeleteRetentionMs:      g.num(DeleteRetentionMs),
		MinCleanableDirtyRatio: g.float(MinDirtyRatio),
	}
	for _, p := range policy {
		c.CleanupDelete = c.CleanupDelete || p == "delete"
		c.CleanupCompact = c.CleanupCompact || p == "compact"
	}
	switch g.str(DurabilityConfig) {
	case "async":
		c.Durability = Async
	case "object":
		c.Durability = Object
	}
	if v, ok := overrides[InternalSegment]; ok {
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32); err == nil && n > 0 {
			c.SegmentBytes = n
		}
	}
	return c
}

// check tests the settings that limit each other, in Kafka's words.
func (c *TopicConfig) check() error {
	if c.MinCompactionLagMs > c.MaxCompactionLagMs {
		return &ConfigError{Key: MinCompactionLagMs, Value: strconv.FormatInt(c.MinCompactionLagMs, 10),
			Msg: fmt.Sprintf("conflict topic config setting %s (%d) > %s (%d)",
				MinCompactionLagMs, c.MinCompactionLagMs, MaxCompactionLagMs, c.MaxCompactionLagMs)}
	}
	if err := checkLocal(LocalRetentionMs, c.LocalRetentionMs, RetentionMs, c.RetentionMs); err != nil {
		return err
	}
	return checkLocal(LocalRetentionBytes, c.LocalRetentionBytes, RetentionBytes, c.RetentionBytes)
}

func checkLocal(localName string, local int64, totalName string, total int64) error {
	if total < 0 || local == -2 {
		return nil
	}
	v, msg := strconv.FormatInt(local, 10), ""
	switch {
	case local == -1:
		msg = fmt.Sprintf("Value must not be -1 as %s value is set as %d.", totalName, total)
	case local > total:
		msg = fmt.Sprintf("Value must not be more than property: %s value.", totalName)
	default:
		return nil
	}
	return &ConfigError{Key: localName, Value: v,
		Msg: fmt.Sprintf("Invalid value %s for configuration %s: %s", v, localName, msg)}
}

// LocalMs returns the effective local retention time, -1 for ever.
func (c *TopicConfig) LocalMs() int64 {
	if c.LocalRetentionMs == -2 {
		return c.RetentionMs
	}
	return c.LocalRetentionMs
}

// LocalBytes returns the effective local retention size, -1 unlimited.
func (c *TopicConfig) LocalBytes() int64 {
	if c.LocalRetentionBytes == -2 {
		return c.RetentionBytes
	}
	return c.LocalRetentionBytes
}
