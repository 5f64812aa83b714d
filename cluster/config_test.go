package cluster

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopicNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", strings.Repeat("x", 249), "...", "__consumer_offsets", "-"} {
		require.NoError(t, ValidTopicName(good), good)
	}
	for bad, text := range map[string]string{
		"":                       "Topic name is invalid: the empty string is not allowed",
		".":                      "Topic name is invalid: '.' is not allowed",
		"..":                     "Topic name is invalid: '..' is not allowed",
		"a b":                    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"ä":                      "contains one or more characters",
		"a/b":                    "contains one or more characters",
		"a\x00":                  "contains one or more characters",
		"\xff":                   "contains one or more characters",
		strings.Repeat("x", 250): "is longer than the max allowed length 249",
	} {
		err := ValidTopicName(bad)
		require.ErrorIs(t, err, ErrInvalidTopicName, bad)
		require.ErrorContains(t, err, text)
	}
}

func TestDefinitionsAreConsistent(t *testing.T) {
	for _, defs := range [][]ConfigDef{TopicConfigDefs, BrokerConfigDefs} {
		seen := map[string]bool{}
		for _, d := range defs {
			require.False(t, seen[d.Name], d.Name)
			seen[d.Name] = true
			require.NotEmpty(t, d.Doc, d.Name)
			require.True(t, strings.HasSuffix(d.Doc, "."), d.Name)
			if d.Default != "" {
				require.NoError(t, d.Validate(d.Default), d.Name)
			}
			for _, s := range d.Synonyms {
				require.NotNil(t, BrokerConfigDef(s.Name), "%s falls back to %s", d.Name, s.Name)
			}
		}
	}
	c, err := ParseTopicConfig(nil, nil)
	require.NoError(t, err)
	require.Equal(t, TopicConfig{RetentionMs: 604800000, RetentionBytes: -1, LocalRetentionMs: -2, LocalRetentionBytes: -2,
		SegmentBytes: 64 << 20, SegmentMs: 300000, MaxMessageBytes: 1048588, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3600000,
		CleanupDelete: true, Durability: Sync, MinInsyncReplicas: 1, CompressionType: "producer", MaxCompactionLagMs: math.MaxInt64,
		DeleteRetentionMs: 86400000, MinCleanableDirtyRatio: 0.5}, c)
}

func TestTopicSettingsAreCheckedAsKafkaDoes(t *testing.T) {
	for _, tc := range []struct{ key, value, want string }{
		{RetentionMs, "-1", ""},
		{RetentionMs, " 5 ", ""},
		{RetentionMs, "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
		{RetentionMs, "soon", "Invalid value soon for configuration retention.ms: Not a number of type LONG"},
		{RetentionMs, "", "Invalid value  for configuration retention.ms: Not a number of type LONG"},
		{RetentionMs, "9223372036854775808", "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG"},
		{SegmentBytes, "1048575", "Invalid value 1048575 for configuration segment.bytes: Value must be at least 1048576"},
		{SegmentBytes, "2147483648", "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT"},
		{InternalSegment, "1", ""},
		{MaxMessageBytes, "0", ""},
		{MaxMessageBytes, "-1", "Invalid value -1 for configuration max.message.bytes: Value must be at least 0"},
		{CleanupPolicy, "compact,delete", ""},
		{CleanupPolicy, "", ""},
		{CleanupPolicy, "shred", "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete"},
		{TimestampType, "LogAppendTime", ""},
		{TimestampType, "logappendtime", "Invalid value logappendtime for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
		{CompressionType, "brotli", "Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be at least 1"},
		{"compression.gzip.level", "-1", ""},
		{"compression.zstd.level", "23", "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22"},
		{MinDirtyRatio, "1.5", "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{MinDirtyRatio, "NaN", "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"},
		{"preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
		{"preallocate", "TRUE", ""},
		{MinInsyncReplicas, "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
		{DurabilityConfig, "async", ""},
		{DurabilityConfig, "object", ""},
		{DurabilityConfig, "maybe", "Invalid value maybe for configuration tierbroker.durability: String must be one of: sync, async, object"},
		{"leader.replication.throttled.replicas", "0:1,1:2", ""},
		{"leader.replication.throttled.replicas", "*", ""},
		{"leader.replication.throttled.replicas", "0", "Invalid value 0 for configuration leader.replication.throttled.replicas: Must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{"no.such", "1", "Unknown topic config name: no.such"},
		{LocalRetentionMs, "604800001", "Invalid value 604800001 for configuration local.retention.ms: Value must not be more than property: retention.ms value."},
		{LocalRetentionMs, "-1", "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 604800000."},
		{LocalRetentionBytes, "7", ""},
		{MaxCompactionLagMs, "1", ""},
	} {
		_, err := ParseTopicConfig(map[string]string{tc.key: tc.value}, nil)
		if tc.want == "" {
			require.NoError(t, err, "%s=%s", tc.key, tc.value)
			continue
		}
		var bad *ConfigError
		require.ErrorAs(t, err, &bad, "%s=%s", tc.key, tc.value)
		require.Equal(t, tc.want, bad.Error())
		require.Equal(t, tc.key, bad.Key)
		require.ErrorIs(t, err, ErrInvalidConfig)
	}
	_, err := ParseTopicConfig(map[string]string{MinCompactionLagMs: "9", MaxCompactionLagMs: "8"}, nil)
	require.ErrorContains(t, err, "min.compaction.lag.ms (9) > max.compaction.lag.ms (8)")
	huge := strings.Repeat("x", 1<<20)
	_, err = ParseTopicConfig(map[string]string{RetentionMs: huge}, nil)
	require.Less(t, len(err.Error()), 1000, "a hostile value does not fill logs")
}

func TestTopicSettingsFallBackToTheBroker(t *testing.T) {
	for _, tc := range []struct {
		broker map[string]string
		want   int64
	}{
		{map[string]string{"log.retention.hours": "2"}, 7_200_000},
		{map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000},
		{map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4},
		{map[string]string{"log.retention.hours": "-1"}, -1},
		{map[string]string{"log.retention.hours": "2147483647"}, 2147483647 * 3_600_000},
		{map[string]string{"log.retention.hours": "never"}, 604_800_000},
		{map[string]string{"log.retention.ms": "never", "log.retention.hours": "1"}, 3_600_000},
	} {
		c, err := ParseTopicConfig(nil, tc.broker)
		require.NoError(t, err)
		require.Equal(t, tc.want, c.RetentionMs, "%v", tc.broker)
		c, err = ParseTopicConfig(map[string]string{RetentionMs: "1"}, tc.broker)
		require.NoError(t, err)
		require.Equal(t, int64(1), c.RetentionMs)
	}
	c, err := ParseTopicConfig(map[string]string{LocalRetentionMs: "5", CleanupPolicy: "compact", InternalSegment: "4096", DurabilityConfig: "async"},
		map[string]string{"log.local.retention.bytes": "9", "log.message.timestamp.type": "LogAppendTime"})
	require.NoError(t, err)
	require.Equal(t, []int64{5, 9, 4096}, []int64{c.LocalMs(), c.LocalBytes(), c.SegmentBytes})
	require.True(t, c.LogAppendTime && c.CleanupCompact && !c.CleanupDelete && c.Durability == Async)
	c, err = ParseTopicConfig(nil, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{604800000, -1}, []int64{c.LocalMs(), c.LocalBytes()})
}

func TestDescribeTopicConfig(t *testing.T) {
	l := ConfigLayers{
		Topic:         map[string]string{SegmentMs: "9"},
		Broker:        map[string]string{"log.retention.ms": "3"},
		DefaultBroker: map[string]string{"log.retention.ms": "2", "log.roll.hours": "1"},
		Static:        map[string]string{"log.retention.hours": "5", "message.max.bytes": "77"},
	}
	got := map[string]ConfigValue{}
	for _, v := range DescribeTopicConfig(l) {
		got[v.Def.Name] = v
	}
	require.NotContains(t, got, InternalSegment)
	require.Len(t, got, len(TopicConfigDefs)-1)
	v := got[RetentionMs]
	require.Equal(t, "3", v.Value)
	require.Equal(t, SourceDynamicBroker, v.Source)
	require.Equal(t, []ConfigSynonym{
		{"log.retention.ms", "3", SourceDynamicBroker},
		{"log.retention.ms", "2", SourceDynamicDefaultBroker},
		{"log.retention.hours", "5", SourceStaticBroker},
		{"log.retention.ms", "604800000", SourceDefault},
	}, v.Synonyms)
	v = got[SegmentMs]
	require.Equal(t, []any{"9", SourceTopic}, []any{v.Value, v.Source})
	require.Equal(t, ConfigSynonym{SegmentMs, "9", SourceTopic}, v.Synonyms[0])
	require.Equal(t, []any{"77", SourceStaticBroker}, []any{got[MaxMessageBytes].Value, got[MaxMessageBytes].Source})
	require.Equal(t, []any{"delete", SourceDefault}, []any{got[CleanupPolicy].Value, got[CleanupPolicy].Source})

	broker := map[string]ConfigValue{}
	for _, v := range DescribeBrokerConfig(l) {
		broker[v.Def.Name] = v
	}
	require.Equal(t, []any{"3", SourceDynamicBroker}, []any{broker["log.retention.ms"].Value, broker["log.retention.ms"].Source})
	require.Equal(t, []any{"true", SourceDefault}, []any{broker[AutoCreateTopics].Value, broker[AutoCreateTopics].Source})
	require.True(t, broker[AutoCreateTopics].Def.ReadOnly)
	require.False(t, broker["log.retention.ms"].Def.ReadOnly)
}

func TestConfigOperations(t *testing.T) {
	current := map[string]string{RetentionMs: "5", CleanupPolicy: "delete", "of.an.older.version": "x"}
	v := "7"
	for name, tc := range map[string]struct {
		ops     []ConfigOp
		replace bool
		want    map[string]string
		err     string
	}{
		"set":      {ops: []ConfigOp{{RetentionMs, OpSet, "6"}, {"of.an.older.version", OpDelete, ""}}, want: map[string]string{RetentionMs: "6", CleanupPolicy: "delete"}},
		"append":   {ops: []ConfigOp{{CleanupPolicy, OpAppend, "compact,delete"}, {"of.an.older.version", OpDelete, ""}}, want: map[string]string{RetentionMs: "5", CleanupPolicy: "delete,compact"}},
		"subtract": {ops: []ConfigOp{{CleanupPolicy, OpSubtract, "delete"}, {"of.an.older.version", OpDelete, ""}}, want: map[string]string{RetentionMs: "5", CleanupPolicy: ""}},
		"replace":  {ops: SetConfigs(map[string]*string{SegmentMs: &v, RetentionMs: nil}), replace: true, want: map[string]string{SegmentMs: "7"}},
		"no list":  {ops: []ConfigOp{{RetentionMs, OpAppend, "6"}}, replace: true, err: "Can't append to key retention.ms because its type is not LIST."},
		"unknown":  {ops: []ConfigOp{{"no.such", OpSet, "6"}}, replace: true, err: "Unknown topic config name: no.such"},
		"bad":      {ops: []ConfigOp{{RetentionMs, OpSet, "x"}}, replace: true, err: "Invalid value x for configuration retention.ms: Not a number of type LONG"},
		"bad op":   {ops: []ConfigOp{{RetentionMs, 9, "x"}}, replace: true, err: "Unknown operation type 9 for configuration retention.ms"},
	} {
		got, err := ApplyTopicConfigOps(current, tc.ops, tc.replace, nil)
		if tc.err != "" {
			require.EqualError(t, err, tc.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tc.want, got, name)
	}
	require.Len(t, current, 3, "the argument stays as it was")

	got, err := ApplyTopicConfigOps(nil, []ConfigOp{{CleanupPolicy, OpAppend, "compact"}}, false, map[string]string{"log.cleanup.policy": "delete"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{CleanupPolicy: "delete,compact"}, got, "appends to the default")

	broker, err := ApplyBrokerConfigOps(nil, []ConfigOp{{"log.retention.hours", OpSet, "3"}}, false)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"log.retention.hours": "3"}, broker)
	_, err = ApplyBrokerConfigOps(nil, []ConfigOp{{NumPartitions, OpSet, "3"}}, false)
	require.ErrorIs(t, err, ErrInvalidConfig, "read-only")
	_, err = ApplyBrokerConfigOps(nil, []ConfigOp{{"no.such", OpSet, "3"}}, false)
	require.EqualError(t, err, "Unknown broker config name: no.such")
}

func TestProcessSettings(t *testing.T) {
	m := NormalizeStatic(map[string]string{RetentionMs: "5", "segment.ms": "6", "log.roll.ms": "7", NumPartitions: "8", CompressionType: "gzip"})
	require.Equal(t, map[string]string{"log.retention.ms": "5", "log.roll.ms": "7", NumPartitions: "8", CompressionType: "gzip"}, m)
	b := ParseBrokerSettings(m)
	require.Equal(t, BrokerSettings{AutoCreateTopics: true, NumPartitions: 8, ReplicationFactor: 1, DeleteTopics: true,
		MessageMaxBytes: 1048588, ProducerExpirationMs: 86400000}, b)
	require.NoError(t, CheckSetting(RetentionMs, "5"))
	require.NoError(t, CheckSetting("log.retention.hours", "5"))
	require.ErrorIs(t, CheckSetting("log.retention.hours", "x"), ErrInvalidConfig)
	require.ErrorIs(t, CheckSetting("no.such", "x"), ErrInvalidConfig)
	require.NoError(t, CheckBrokerConfig(map[string]string{NumPartitions: "1", "something.else": "x"}))
	require.ErrorIs(t, CheckBrokerConfig(map[string]string{NumPartitions: "0"}), ErrInvalidConfig)
	require.Equal(t, "LIST", TypeList.String())
	require.Equal(t, "UNKNOWN", ConfigType(99).String())
	require.Equal(t, []string{"sync", "async", "object"}, []string{Sync.String(), Async.String(), Object.String()})
}

func TestOwnerMoves(t *testing.T) {
	for s := range numStates {
		require.Equal(t, s == Draining, OwnerMay(s, Starting), "only a hand-over starts besides the controller")
		require.NotEqual(t, "Invalid", s.String())
		exits := 0
		for to := range numStates {
			if OwnerMay(s, to) {
				exits++
			}
		}
		if s != Unassigned && s != Deleted {
			require.Positive(t, exits, "%s has an exit", s)
		}
	}
	require.False(t, OwnerMay(200, Writing))
	require.Equal(t, "Invalid", State(200).String())
}
