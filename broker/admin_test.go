package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

func TestDescribeCluster(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Advertised = map[string]Endpoint{"": {Host: "adv", Port: 7}} })
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations = v == 2
		r := ask[*kmsg.DescribeClusterResponse](w, req, v)
		require.Zero(t, r.ErrorCode)
		require.Equal(t, "test-cluster", r.ClusterID)
		require.EqualValues(t, 1, r.ControllerID)
		require.Len(t, r.Brokers, 1)
		require.Equal(t, "adv", r.Brokers[0].Host)
		require.EqualValues(t, map[bool]int32{true: 8096, false: notAsked}[v == 2], r.ClusterAuthorizedOperations)
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	require.Equal(t, kerr.MismatchedEndpointType.Code, ask[*kmsg.DescribeClusterResponse](w, req, 1).ErrorCode)
	req.EndpointType = 3
	require.Equal(t, kerr.UnsupportedEndpointType.Code, ask[*kmsg.DescribeClusterResponse](w, req, 2).ErrorCode)
}

func TestFindCoordinator(t *testing.T) {
	w := newWorld(t)
	for v := int16(0); v <= 6; v++ {
		for kind := int8(0); kind < 4; kind++ {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = "g", []string{"g", "h"}, kind
			if v == 0 && kind > 0 {
				continue
			}
			want := kerr.CoordinatorNotAvailable.Code
			at := int32(-1)
			switch {
			case kind == 3 || kind == 2 && v < 6:
				want = kerr.InvalidRequest.Code
			case kind == 0:
				want, at = 0, 1
			}
			r := ask[*kmsg.FindCoordinatorResponse](w, req, v)
			if v < 4 {
				require.Equal(t, want, r.ErrorCode)
				require.Equal(t, at, r.NodeID)
				continue
			}
			require.Len(t, r.Coordinators, 2)
			require.Equal(t, "h", r.Coordinators[1].Key)
			require.Equal(t, want, r.Coordinators[1].ErrorCode)
			require.Equal(t, at, r.Coordinators[1].NodeID)
		}
	}
}

func TestInitProducerID(t *testing.T) {
	w := newWorld(t)
	seen := map[int64]bool{}
	for i := range 2500 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch = -1, -1
		if i%3 == 1 {
			req.ProducerID, req.ProducerEpoch = 77, 3 // a client that raises its own epoch gets a new id
		}
		r := ask[*kmsg.InitProducerIDResponse](w, req, int16(i%6))
		require.Zero(t, r.ErrorCode)
		require.Zero(t, r.ProducerEpoch)
		require.False(t, seen[r.ProducerID])
		seen[r.ProducerID] = true
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = 5, -1
	require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.InitProducerIDResponse](w, req, 4).ErrorCode)
	req = kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch, req.TransactionalID = -1, -1, kmsg.StringPtr("")
	require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.InitProducerIDResponse](w, req, 4).ErrorCode)
	req.TransactionalID = kmsg.StringPtr("tx")
	require.Equal(t, kerr.UnsupportedVersion.Code, ask[*kmsg.InitProducerIDResponse](w, req, 4).ErrorCode)

	broken := newWorld(t, func(o *Options) { o.Cluster = noIDs{o.Cluster} })
	req = kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	require.Equal(t, kerr.CoordinatorNotAvailable.Code, ask[*kmsg.InitProducerIDResponse](broken, req, 4).ErrorCode)
}

type noIDs struct{ ClusterState }

func (noIDs) AllocateProducerIDs(context.Context, int) (int64, error) {
	return 0, cluster.ErrUnavailable
}

func TestDescribeLogDirs(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	w.topic("u", 1)
	b := records(1, "a")
	w.part(topic, 1).write(b)
	for v := int16(0); v <= 4; v++ {
		r := ask[*kmsg.DescribeLogDirsResponse](w, kmsg.NewPtrDescribeLogDirsRequest(), v)
		require.Len(t, r.Dirs, 1)
		require.Equal(t, "/data", r.Dirs[0].Dir)
		require.Len(t, r.Dirs[0].Topics, 2)
		require.EqualValues(t, len(b), r.Dirs[0].Topics[0].Partitions[1].Size)
		if v >= 4 {
			require.EqualValues(t, 1000, r.Dirs[0].TotalBytes)
			require.EqualValues(t, 400, r.Dirs[0].UsableBytes)
		}
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 8}}, {Topic: "x", Partitions: []int32{0}}}
		r = ask[*kmsg.DescribeLogDirsResponse](w, req, v)
		require.Len(t, r.Dirs[0].Topics, 1)
		require.Len(t, r.Dirs[0].Topics[0].Partitions, 1)
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
		require.Empty(t, ask[*kmsg.DescribeLogDirsResponse](w, req, v).Dirs[0].Topics)
	}
	broken := newWorld(t, func(o *Options) { o.Disk = func() (int64, int64, error) { return 0, 0, errors.New("no") } })
	r := ask[*kmsg.DescribeLogDirsResponse](broken, kmsg.NewPtrDescribeLogDirsRequest(), 4)
	require.Equal(t, kerr.KafkaStorageError.Code, r.Dirs[0].ErrorCode)
	require.EqualValues(t, -1, r.Dirs[0].TotalBytes)
}

func describe(w *world, v int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return ask[*kmsg.DescribeConfigsResponse](w, req, v).Resources[0]
}

func entry(t *testing.T, r kmsg.DescribeConfigsResponseResource, name string) kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	for _, c := range r.Configs {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no setting "+name)
	return kmsg.DescribeConfigsResponseResourceConfig{}
}

func TestDescribeConfigs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, "retention.ms", "1000")
	for v := int16(0); v <= 4; v++ {
		r := describe(w, v, kmsg.ConfigResourceTypeTopic, "t")
		require.Zero(t, r.ErrorCode)
		e := entry(t, r, "retention.ms")
		require.Equal(t, "1000", *e.Value)
		if v >= 1 {
			require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, e.Source)
			require.Len(t, e.ConfigSynonyms, 2)
			require.Equal(t, "log.retention.ms", e.ConfigSynonyms[1].Name)
		}
		if v >= 3 {
			require.Equal(t, kmsg.ConfigTypeLong, e.ConfigType)
			require.NotEmpty(t, *e.Documentation)
		}
		e = entry(t, r, "cleanup.policy")
		require.Equal(t, "delete", *e.Value)
		if v == 0 {
			require.True(t, e.IsDefault)
		} else {
			require.Equal(t, kmsg.ConfigSourceDefaultConfig, e.Source)
		}
		require.Len(t, describe(w, v, kmsg.ConfigResourceTypeTopic, "t", "retention.ms", "none").Configs, 1)
		r = describe(w, v, kmsg.ConfigResourceTypeBroker, "1")
		require.Zero(t, r.ErrorCode)
		e = entry(t, r, "log.dirs")
		require.Equal(t, "/data", *e.Value)
		require.True(t, e.ReadOnly)
		require.Empty(t, describe(w, v, kmsg.ConfigResourceTypeBroker, "").Configs)
	}
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want *kerr.Error
	}{
		{kmsg.ConfigResourceTypeTopic, "x", kerr.UnknownTopicOrPartition},
		{kmsg.ConfigResourceTypeTopic, "x y", kerr.InvalidTopicException},
		{kmsg.ConfigResourceTypeBroker, "9", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeBroker, "a", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", kerr.InvalidRequest},
		{77, "", kerr.InvalidRequest},
	} {
		r := describe(w, 4, c.kind, c.name)
		require.Equal(t, c.want.Code, r.ErrorCode)
		require.NotEmpty(t, *r.ErrorMessage)
		require.Empty(t, r.Configs)
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, "retention.ms", "1000")
	alter := func(v int16, dry bool, kind kmsg.ConfigResourceType, name string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) int16 {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = dry
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: ops}}
		return ask[*kmsg.IncrementalAlterConfigsResponse](w, req, v).Resources[0].ErrorCode
	}
	op := func(o kmsg.IncrementalAlterConfigOp, name, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
		return kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Op: o, Value: &value}
	}
	const set, del, app, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	value := func(name string) string { return *entry(t, describe(w, 4, topic, "t"), name).Value }

	require.Zero(t, alter(0, true, topic, "t", op(set, "retention.ms", "7")))
	require.Equal(t, "1000", value("retention.ms"))
	require.Zero(t, alter(1, false, topic, "t", op(set, "segment.ms", "9"), op(app, "cleanup.policy", "compact")))
	require.Equal(t, []string{"1000", "9", "delete,compact"}, []string{value("retention.ms"), value("segment.ms"), value("cleanup.policy")})
	require.Zero(t, alter(1, false, topic, "t", op(del, "retention.ms", ""), op(sub, "cleanup.policy", "compact")))
	require.Equal(t, []string{"604800000", "delete"}, []string{value("retention.ms"), value("cleanup.policy")})
	require.Zero(t, alter(1, false, broker, "", op(set, "log.retention.ms", "5000")))
	require.Equal(t, "5000", value("retention.ms"))
	require.Zero(t, alter(1, false, broker, "1", op(set, "log.retention.ms", "6000")))
	require.Equal(t, "6000", value("retention.ms"))
	require.Len(t, describe(w, 4, broker, "").Configs, 1)

	null := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "retention.ms", Op: set}
	for _, c := range []struct {
		want *kerr.Error
		got  int16
	}{
		{kerr.InvalidConfig, alter(1, false, topic, "t", op(set, "nope", "1"))},
		{kerr.InvalidConfig, alter(1, false, topic, "t", op(set, "retention.ms", "x"))},
		{kerr.InvalidConfig, alter(1, false, topic, "t", op(app, "retention.ms", "1"))},
		{kerr.InvalidConfig, alter(1, false, topic, "t", op(9, "retention.ms", "1"))},
		{kerr.InvalidRequest, alter(1, false, topic, "t", null)},
		{kerr.InvalidRequest, alter(1, false, topic, "t", op(set, "retention.ms", "1"), op(set, "retention.ms", "2"))},
		{kerr.UnknownTopicOrPartition, alter(1, false, topic, "x", op(set, "retention.ms", "1"))},
		{kerr.InvalidTopicException, alter(1, false, topic, "", op(set, "retention.ms", "1"))},
		{kerr.InvalidRequest, alter(1, false, broker, "5", op(set, "log.retention.ms", "1"))},
		{kerr.InvalidRequest, alter(1, false, broker, "a", op(set, "log.retention.ms", "1"))},
		{kerr.InvalidConfig, alter(1, false, broker, "1", op(set, "log.dirs", "/x"))},
		{kerr.InvalidRequest, alter(1, false, kmsg.ConfigResourceTypeBrokerLogger, "1", op(set, "x", "1"))},
	} {
		require.Equal(t, c.want.Code, c.got, "%v", kerr.ErrorForCode(c.got))
	}
}

func TestAlterConfigs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, "retention.ms", "1000", "segment.ms", "5")
	for v := int16(0); v <= 2; v++ {
		val := fmt.Sprint(100 + v)
		req := kmsg.NewPtrAlterConfigsRequest()
		cfg := kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms", Value: &val}
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", Configs: []kmsg.AlterConfigsRequestResourceConfig{cfg}}}
		req.ValidateOnly = true
		require.Zero(t, ask[*kmsg.AlterConfigsResponse](w, req, v).Resources[0].ErrorCode)
		require.NotEqual(t, val, w.client.Image().TopicByName("t").Overrides["retention.ms"])
		req.ValidateOnly = false
		require.Zero(t, ask[*kmsg.AlterConfigsResponse](w, req, v).Resources[0].ErrorCode)
		require.Equal(t, map[string]string{"retention.ms": val}, w.client.Image().TopicByName("t").Overrides, "what isn't named is dropped")

		req.Resources = append(req.Resources, req.Resources[0])
		for _, r := range ask[*kmsg.AlterConfigsResponse](w, req, v).Resources {
			require.Equal(t, kerr.InvalidRequest.Code, r.ErrorCode)
		}
		req.Resources = req.Resources[:1]
		req.Resources[0].Configs[0].Value = nil
		require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.AlterConfigsResponse](w, req, v).Resources[0].ErrorCode)
	}
}
