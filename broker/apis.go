package broker

import (
	"context"

	"github.com/tierbroker/tierbroker/kafka"
)

// handler answers one API. It runs where kafka.Handler.Handle runs.
type handler func(b *Broker, ctx context.Context, c *call) kafka.Pending

// api is a row of the table.
type api struct {
	key        int16
	name       string
	min, max   int16 // versions that are served
	advertised int16 // lowest version that ApiVersions names
	maxBody    int   // bytes; 0 for no limit but the frame's
	handle     handler
}

// Limits of request bodies. Lists of topics and partitions have room for a hundred thousand of them.
const (
	small = 256 << 10
	large = 4 << 20
)

// apis is the table of all APIs: what isn't here doesn't exist. Everything ApiVersions says is computed from it.
//
// Produce advertises 0 although only 3 and up are served: librdkafka before 2.5 otherwise takes the broker for one
// that can't compress (KAFKA-18659). Kafka does the same.
var apis = []api{
	{0, "Produce", 3, 13, 0, 0, (*Broker).produce},
	{1, "Fetch", 4, 18, 4, large, (*Broker).fetch},
	{2, "ListOffsets", 1, 11, 1, large, viaKmsg((*Broker).listOffsets)},
	{3, "Metadata", 0, 13, 0, large, viaKmsg((*Broker).metadata)},
	{8, "OffsetCommit", 2, 10, 2, large, viaKmsg((*Broker).offsetCommit)},
	{9, "OffsetFetch", 1, 10, 1, large, viaKmsg((*Broker).offsetFetch)},
	{10, "FindCoordinator", 0, 6, 0, small, viaKmsg((*Broker).findCoordinator)},
	{11, "JoinGroup", 0, 9, 0, large, owned(viaKmsg((*Broker).joinGroup))},
	{12, "Heartbeat", 0, 4, 0, small, viaKmsg((*Broker).heartbeat)},
	{13, "LeaveGroup", 0, 5, 0, small, viaKmsg((*Broker).leaveGroup)},
	{14, "SyncGroup", 0, 5, 0, large, owned(viaKmsg((*Broker).syncGroup))},
	{15, "DescribeGroups", 0, 6, 0, small, viaKmsg((*Broker).describeGroups)},
	{16, "ListGroups", 0, 5, 0, small, viaKmsg((*Broker).listGroups)},
	{18, "ApiVersions", 0, 4, 0, small, viaKmsg((*Broker).apiVersions)},
	{19, "CreateTopics", 2, 7, 2, large, viaKmsg((*Broker).createTopics)},
	{20, "DeleteTopics", 1, 6, 1, large, viaKmsg((*Broker).deleteTopics)},
	{21, "DeleteRecords", 0, 2, 0, large, viaKmsg((*Broker).deleteRecords)},
	{22, "InitProducerId", 0, 5, 0, small, viaKmsg((*Broker).initProducerID)},
	{23, "OffsetForLeaderEpoch", 2, 4, 2, large, viaKmsg((*Broker).offsetForLeaderEpoch)},
	{32, "DescribeConfigs", 0, 4, 0, large, viaKmsg((*Broker).describeConfigs)},
	{33, "AlterConfigs", 0, 2, 0, large, viaKmsg((*Broker).alterConfigs)},
	{35, "DescribeLogDirs", 0, 4, 0, large, viaKmsg((*Broker).describeLogDirs)},
	{37, "CreatePartitions", 0, 3, 0, large, viaKmsg((*Broker).createPartitions)},
	{42, "DeleteGroups", 0, 2, 0, small, viaKmsg((*Broker).deleteGroups)},
	{43, "ElectLeaders", 0, 2, 0, large, viaKmsg((*Broker).electLeaders)},
	{44, "IncrementalAlterConfigs", 0, 1, 0, large, viaKmsg((*Broker).incrementalAlterConfigs)},
	{45, "AlterPartitionReassignments", 0, 0, 0, large, viaKmsg((*Broker).alterPartitionReassignments)},
	{46, "ListPartitionReassignments", 0, 0, 0, large, viaKmsg((*Broker).listPartitionReassignments)},
	{47, "OffsetDelete", 0, 0, 0, large, viaKmsg((*Broker).offsetDelete)},
	{60, "DescribeCluster", 0, 2, 0, small, viaKmsg((*Broker).describeCluster)},
	{68, "ConsumerGroupHeartbeat", 0, 1, 0, small, viaKmsg((*Broker).consumerGroupHeartbeat)},
	{69, "ConsumerGroupDescribe", 0, 1, 0, small, viaKmsg((*Broker).consumerGroupDescribe)},
	{75, "DescribeTopicPartitions", 0, 0, 0, large, viaKmsg((*Broker).describeTopicPartitions)},
}
