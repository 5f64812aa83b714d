package cluster

import (
	"slices"
	"strings"
)

// Names of the settings of consumer groups, for code.
const (
	GroupMinSession        = "group.min.session.timeout.ms"
	GroupMaxSession        = "group.max.session.timeout.ms"
	GroupInitialDelay      = "group.initial.rebalance.delay.ms"
	GroupMaxSize           = "group.max.size"
	GroupConsumerAssignors = "group.consumer.assignors"
	GroupConsumerHeartbeat = "group.consumer.heartbeat.interval.ms"
	GroupConsumerMaxSize   = "group.consumer.max.size"
	GroupConsumerMigration = "group.consumer.migration.policy"
	GroupConsumerSession   = "group.consumer.session.timeout.ms"
	OffsetMetadataMaxBytes = "offset.metadata.max.bytes"
	OffsetsRetention       = "offsets.retention.minutes"
	OffsetsRetentionCheck  = "offsets.retention.check.interval.ms"
	GroupLagSeries         = "tierbroker.group.lag.max.series"
)

// GroupConfigDefs are the broker settings of consumer groups, in the order of their names. All are dynamic: a coordinator
// takes a change up at once. Those that Kafka reads at its start only are dynamic here as well.
var GroupConfigDefs = []ConfigDef{
	{Name: GroupConsumerAssignors, Type: TypeList, Default: "uniform,range", check: someOf("uniform", "range"),
		Doc: "Assignors that consumer groups may use; the first is the default. A group keeps its partitions until it rebalances."},
	{Name: GroupConsumerHeartbeat, Type: TypeInt, Default: "5000", check: atLeast(1), Doc: "Heartbeat interval of consumer groups in milliseconds."},
	{Name: GroupConsumerMaxSize, Type: TypeInt, Default: "2147483647", check: atLeast(1), Doc: "Most members of a consumer group; members beyond a lowered limit stay."},
	{Name: GroupConsumerMigration, Type: TypeString, Default: "bidirectional", check: oneOfFold("bidirectional", "upgrade", "downgrade", "disabled"),
		Doc: "Between which protocols a group with members may change: upgrade to the consumer protocol, downgrade to the classic one, both or neither."},
	{Name: GroupConsumerSession, Type: TypeInt, Default: "45000", check: atLeast(1), Doc: "Session timeout of consumer groups in milliseconds."},
	{Name: GroupInitialDelay, Type: TypeInt, Default: "3000", check: atLeast(0), Doc: "Milliseconds a new group waits for more members."},
	{Name: GroupMaxSession, Type: TypeInt, Default: "1800000", check: atLeast(1), Doc: "Longest session timeout a member may ask for, in milliseconds."},
	{Name: GroupMaxSize, Type: TypeInt, Default: "2147483647", check: atLeast(1), Doc: "Most members of a group of the classic protocol."},
	{Name: GroupMinSession, Type: TypeInt, Default: "6000", check: atLeast(0), Doc: "Shortest session timeout a member may ask for, in milliseconds."},
	{Name: OffsetMetadataMaxBytes, Type: TypeInt, Default: "4096", check: between(1, 1<<20), Doc: "Most bytes of metadata that a committed offset may carry."},
	{Name: OffsetsRetentionCheck, Type: TypeLong, Default: "600000", check: atLeast(1), Doc: "Milliseconds between two searches for offsets that have expired."},
	{Name: OffsetsRetention, Type: TypeInt, Default: "10080", check: atLeast(1), Doc: "Minutes that offsets of an empty group are kept."},
	{Name: GroupLagSeries, Type: TypeInt, Default: "1000", check: between(0, 100_000),
		Doc: "Most pairs of group and topic whose lag a broker's metrics show; the others are summed up and counted. 0 computes no lag."},
}

// someOf is listOf for lists that must not be empty.
func someOf(allowed ...string) func(string) string {
	list := listOf(allowed...)
	return func(v string) string {
		if len(SplitList(v)) == 0 {
			return "Configuration must not be empty. Valid values include: [" + strings.Join(allowed, ", ") + "]"
		}
		return list(v)
	}
}

// oneOfFold is oneOf without regard to case.
func oneOfFold(allowed ...string) func(string) string {
	return func(v string) string {
		if slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, v) }) {
			return ""
		}
		return "String must be one of (case insensitive): " + strings.ToUpper(strings.Join(allowed, ", "))
	}
}
