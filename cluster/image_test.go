package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/frame"
)

// store is a naive etcd: what an image must equal after any events.
type store struct {
	revision int64
	kvs      map[string]*mvccpb.KeyValue
}

func (s *store) put(key, value string) *mvccpb.KeyValue {
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: s.revision, CreateRevision: s.revision}
	if old := s.kvs[key]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	s.kvs[key] = kv
	return kv
}

// full loads an image from all keys, as a resync does.
func (s *store) full(l localLayers) *Image {
	b := newBuilder("/p/", emptyImage(l))
	for _, k := range slices.Sorted(maps.Keys(s.kvs)) {
		b.put(s.kvs[k])
	}
	return b.build(s.revision)
}

func requireSameImage(t require.TestingT, want, got *Image) {
	require.Equal(t, want.Revision(), got.Revision())
	require.Equal(t, want.Meta(), got.Meta())
	require.Equal(t, want.Topics(), got.Topics())
	require.Equal(t, want.Deleted(), got.Deleted())
	require.Equal(t, maps.Collect(want.Assignments()), maps.Collect(got.Assignments()))
	require.Equal(t, want.NumAssignments(), got.NumAssignments())
	require.Equal(t, want.ControllerID(), got.ControllerID())
	require.Equal(t, want.BrokerDefaults(), got.BrokerDefaults())
	require.Equal(t, want.NextProducerID(), got.NextProducerID())
	require.True(t, maps.Equal(want.BrokerWishes(), got.BrokerWishes()))
	require.Equal(t, want.Moves(), got.Moves())
	for _, w := range want.Moves() {
		have, ok := got.Move(w.ID)
		require.True(t, ok)
		require.Equal(t, w, have)
	}
	require.True(t, maps.EqualFunc(want.BrokerConfigs(), got.BrokerConfigs(), maps.Equal))
	require.True(t, slices.EqualFunc(want.Brokers(), got.Brokers(), func(a, b Broker) bool {
		return a.ID == b.ID && a.Incarnation == b.Incarnation
	}))
	for id, a := range want.Assignments() {
		have, ok := got.Assignment(id)
		require.True(t, ok)
		require.Equal(t, a, have)
	}
	for _, topic := range want.Topics() {
		require.Equal(t, topic, got.TopicByName(topic.Name))
		require.Equal(t, topic, got.TopicByID(topic.ID))
	}
}

// TestImageEqualsFullLoad applies random batches of events and compares with an
// image that is loaded from scratch, and the differences with a naive comparison.
func TestImageEqualsFullLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := localLayers{broker: 1, static: map[string]string{"log.retention.ms": "77"}}
		s := &store{kvs: map[string]*mvccpb.KeyValue{}}
		img := emptyImage(l)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			prev := img
			b := newBuilder("/p/", img)
			for range rapid.IntRange(1, 6).Draw(t, "events") {
				s.revision++
				randomEvent(t, s, b)
			}
			img = b.build(s.revision)
			requireSameImage(t, s.full(l), img)
			requireDifferences(t, prev, img)
			requireSameImage(t, prev, prev.copyOf())
		}
	})
}

// copyOf reads everything, so that a changed old image would show under -race or
// as a difference to itself.
func (i *Image) copyOf() *Image { c := *i; return &c }

func requireDifferences(t require.TestingT, prev, img *Image) {
	before, after := maps.Collect(prev.Assignments()), maps.Collect(img.Assignments())
	want := map[frame.PartitionID]bool{}
	for id, a := range after {
		if old, ok := before[id]; !ok || old != a {
			want[id] = true
		}
	}
	for id := range before {
		if _, ok := after[id]; !ok {
			want[id] = true
		}
	}
	got := map[frame.PartitionID]bool{}
	for id := range img.ChangedPartitions(prev) {
		got[id] = true
	}
	require.Equal(t, want, got)
	require.Equal(t, len(after), len(slices.Collect(img.ChangedPartitions(nil))))
	for id := range img.ChangedTopics(prev) {
		require.NotEqual(t, prev.TopicByID(id), img.TopicByID(id))
	}
	for _, topic := range img.Topics() {
		if old := prev.TopicByID(topic.ID); old == nil || old.Version != topic.Version {
			require.Contains(t, slices.Collect(img.ChangedTopics(prev)), topic.ID)
		}
	}
}

func randomEvent(t *rapid.T, s *store, b *builder) {
	id := frame.TopicID{}
	id[0] = rapid.Byte().Draw(t, "topic")%4 + 1
	n := rapid.IntRange(0, 3).Draw(t, "number")
	var key, value string
	switch rapid.SampledFrom([]string{"meta", "broker", "topic", "deleted", "shard", "config", "election", "producers", "wish", "move", "unknown", "foreign"}).Draw(t, "kind") {
	case "meta":
		key, value = "/p/meta", fmt.Sprintf(`{"clusterId":"c%d","incarnation":"i","schema":1}`, n)
	case "broker":
		key, value = fmt.Sprintf("/p/brokers/%d", n), fmt.Sprintf(`{"id":%d,"incarnation":"r%d"}`, n, s.revision)
	case "topic":
		key = "/p/topics/" + id.String()
		value = fmt.Sprintf(`{"name":"t%d","partitions":%d,"version":%d,"configs":{"retention.ms":"%d"}}`, id[0], n+1, s.revision, n)
	case "deleted":
		key, value = "/p/deleted/"+id.String(), fmt.Sprintf(`{"name":"t","id":%q,"partitions":%d}`, id, n+1)
	case "shard":
		key, value = fmt.Sprintf("/p/assign/%08x", n), randomShard(t, byte(n))
	case "config":
		key = rapid.SampledFrom([]string{"/p/config/default", "/p/config/broker/1", "/p/config/broker/2"}).Draw(t, "whose")
		value = fmt.Sprintf(`{"log.retention.ms":"%d"}`, n)
	case "election":
		key, value = fmt.Sprintf("/p/election/%016x", n), fmt.Sprint(n)
	case "producers":
		key, value = "/p/producers", fmt.Sprint(s.revision)
	case "wish":
		key, value = fmt.Sprintf("/p/operator/broker/%d", n), fmt.Sprintf(`{"draining":true,"since":%d}`, s.revision)
	case "move":
		key, value = fmt.Sprintf("/p/operator/move/%s/%d", id, n), fmt.Sprintf(`{"target":%d,"goal":"g%d"}`, n, s.revision)
	case "unknown":
		key, value = "/p/later/version", "x"
	case "foreign":
		key, value = "/q/meta", "x"
	}
	if key != "/p/meta" && rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
		delete(s.kvs, key)
		b.del([]byte(key))
		return
	}
	b.put(s.put(key, value))
}

// randomShard has partitions of its own only: shards never overlap.
func randomShard(t *rapid.T, n byte) string {
	s := &shard{}
	seen := map[frame.PartitionID]bool{}
	var list []idEntry
	for range rapid.IntRange(1, 8).Draw(t, "entries") {
		id := frame.PartitionID{Partition: int32(n)*10 + rapid.Int32Range(0, 9).Draw(t, "partition")}
		id.Topic[0] = rapid.Byte().Draw(t, "of")%3 + 1
		if !seen[id] {
			seen[id] = true
			list = append(list, idEntry{id, drawAssignment(t)})
		}
	}
	s.rebuild(list)
	return string(s.encode())
}

func TestDamagedValuesKeepTheLastGoodOnes(t *testing.T) {
	s := &store{kvs: map[string]*mvccpb.KeyValue{}, revision: 1}
	l := localLayers{}
	id := frame.TopicID{1}
	apply := func(img *Image, key, value string) *Image {
		s.revision++
		b := newBuilder("/p/", img)
		b.put(s.put(key, value))
		return b.build(s.revision)
	}
	img := apply(emptyImage(l), "/p/topics/"+id.String(), `{"name":"t","partitions":2,"version":1}`)
	for _, bad := range []string{"", "{", `{"name":"/","partitions":2}`, `{"name":"t","partitions":0}`, `{"name":"t","partitions":1000000}`,
		`{"name":"t","partitions":2,"configs":"` + strings.Repeat("x", maxRecordBytes) + `"}`} {
		img = apply(img, "/p/topics/"+id.String(), bad)
		require.Len(t, img.Corrupt(), 1)
		require.ErrorIs(t, img.Corrupt()[0], ErrCorrupt)
		require.Equal(t, int32(2), img.TopicByName("t").Partitions)
	}
	img = apply(img, "/p/topics/"+id.String(), `{"name":"t","partitions":3,"version":2}`)
	require.Empty(t, img.Corrupt())
	require.Equal(t, int32(3), img.TopicByName("t").Partitions)
	for key, value := range map[string]string{
		"/p/meta": `{"schema":1}`, "/p/brokers/01": `{"id":1,"incarnation":"x"}`, "/p/brokers/1": `{"id":2,"incarnation":"x"}`,
		"/p/topics/short": "{}", "/p/deleted/" + id.String(): `{"name":"t"}`, "/p/assign/1": "", "/p/assign/0000000A": "",
		"/p/assign/00000001": "\x01\x00\x00", "/p/config/default": "[]", "/p/config/broker/-1": "{}", "/p/election/x": "one", "/p/producers": "-1",
		"/p/operator/broker/x": "{}", "/p/operator/broker/1": "[]", "/p/operator/move/x": "{}", "/p/operator/move/" + id.String() + "/100000": `{"target":1}`,
		"/p/operator/move/" + id.String() + "/1": `{"target":-1}`, "/p/operator/move/" + id.String() + "/2": `{}`, "/p/operator/move/" + id.String() + "/01": `{"target":1}`,
	} {
		bad := apply(img, key, value)
		require.Len(t, bad.Corrupt(), 1, key)
		b := newBuilder("/p/", bad)
		b.del([]byte(key))
		require.Empty(t, b.build(s.revision).Corrupt(), key)
	}
	// Settings of a later version, or damaged by hand, are reported and not fatal.
	img = apply(img, "/p/topics/"+id.String(), `{"name":"t","partitions":3,"configs":{"retention.ms":"never","segment.ms":"9","x":"y"}}`)
	topic := img.TopicByName("t")
	require.ErrorIs(t, topic.ConfigErr, ErrInvalidConfig)
	require.Equal(t, int64(604800000), topic.Config.RetentionMs)
	require.Equal(t, int64(9), topic.Config.SegmentMs)
}

func FuzzBuilder(f *testing.F) {
	f.Add("topics/AQAAAAAAAAAAAAAAAAAAAA", []byte(`{"name":"t","partitions":2}`))
	f.Add("brokers/1", []byte(`{"id":1,"incarnation":"x"}`))
	f.Add("config/default", []byte(`{"log.retention.hours":"9223372036854775807"}`))
	f.Add("config/broker/1", []byte(`{"log.retention.ms":"-5"}`))
	f.Add("deleted/AQAAAAAAAAAAAAAAAAAAAA", []byte(`{"id":"AQAAAAAAAAAAAAAAAAAAAA","partitions":2}`))
	f.Add("election/0000000000000001", []byte("1"))
	f.Add("operator/broker/1", []byte(`{"draining":true,"why":"disk"}`))
	f.Add("operator/move/AQAAAAAAAAAAAAAAAAAAAA/1", []byte(`{"target":2,"force":true,"goal":"count"}`))
	f.Add("assign/00000001", hexExample(f, "../docs/format/etcd.md"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		base := newBuilder("/p/", emptyImage(localLayers{broker: 1}))
		base.put(&mvccpb.KeyValue{Key: []byte("/p/topics/AQAAAAAAAAAAAAAAAAAAAA"), Value: []byte(`{"name":"t","partitions":2}`), ModRevision: 1})
		b := newBuilder("/p/", base.build(1))
		b.put(&mvccpb.KeyValue{Key: []byte("/p/" + key), Value: value, ModRevision: 2})
		img := b.build(2)
		for _, topic := range img.Topics() {
			require.NoError(t, ValidTopicName(topic.Name))
		}
		b = newBuilder("/p/", img)
		b.del([]byte("/p/" + key))
		require.Empty(t, b.build(3).Corrupt())
	})
}

func BenchmarkApplyOneTransition(b *testing.B) {
	s := &store{kvs: map[string]*mvccpb.KeyValue{}, revision: 1}
	build := newBuilder("/p/", emptyImage(localLayers{}))
	var last *shard
	for n := range uint32(20) {
		last = &shard{}
		var list []idEntry
		for p := range int32(ShardPartitions) {
			id := frame.PartitionID{Partition: int32(n)*ShardPartitions + p}
			list = append(list, idEntry{id, entry{Assignment: Assignment{Owner: 1, OwnerIncarnation: "r", State: Writing, Target: NoBroker}}})
		}
		last.rebuild(list)
		build.put(s.put(fmt.Sprintf("/p/assign/%08x", n), string(last.encode())))
	}
	img := build.build(1)
	value := last.encode()
	b.ReportAllocs()
	for b.Loop() {
		s.revision++
		e := newBuilder("/p/", img)
		e.put(&mvccpb.KeyValue{Key: []byte("/p/assign/00000013"), Value: value, ModRevision: s.revision})
		img = e.build(s.revision)
	}
}
