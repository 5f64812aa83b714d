package cluster

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/frame"
)

// hexExample returns the bytes of the first ```hex block of a document.
func hexExample(t testing.TB, path string) []byte {
	doc, err := os.ReadFile(path)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(doc), "```hex\n")
	require.True(t, ok, "%s has an example", path)
	block, _, _ := strings.Cut(rest, "```")
	var out []byte
	for line := range strings.Lines(block) {
		body, _, _ := strings.Cut(line[10:], "|")
		b, err := hex.DecodeString(strings.Join(strings.Fields(body), ""))
		require.NoError(t, err)
		out = append(out, b...)
	}
	return out
}

func TestShardExamples(t *testing.T) {
	topic, err := frame.ParseTopicID("AAECAwQFBgcICQoLDA0ODw")
	require.NoError(t, err)
	read := func(path string) (raw []byte, s *shard) {
		raw = hexExample(t, path)
		s, err := decodeShard(1, 2, raw)
		require.NoError(t, err)
		return raw, s
	}
	want := map[int32]Assignment{
		0: {Owner: 1, OwnerIncarnation: "r7", Epoch: 4, State: Writing, Target: NoBroker, Safe: true},
		1: {Owner: 2, OwnerIncarnation: "r9", State: Failed, Target: NoBroker, Failures: 2, FailedAt: 1767225600000, Reason: "no head"},
		2: {Owner: 1, OwnerIncarnation: "r7", Epoch: 4, State: Draining, Target: 2, TargetSince: 1767225600005, Safe: true, Warm: true},
		9: {Owner: NoBroker, Epoch: NoEpoch, State: Unassigned, Target: NoBroker, Jump: true},
	}
	check := func(s *shard) {
		for p, want := range want {
			require.Equal(t, want, s.find(frame.PartitionID{Topic: topic, Partition: p}).Assignment)
		}
		require.Nil(t, s.find(frame.PartitionID{Topic: topic, Partition: 3}))
		require.Nil(t, s.find(frame.PartitionID{Topic: topic, Partition: 10}))
		require.Nil(t, s.find(frame.PartitionID{}))
	}
	raw, s := read("../docs/format/etcd.md")
	require.Equal(t, raw, s.encode())
	check(s)
	_, s = read("testdata/shard-v1.md")
	for p, a := range want {
		a.Safe, a.Warm, a.Jump, a.TargetSince = false, false, false, 0
		want[p] = a
	}
	check(s)

	old := hexExample(t, "testdata/shard-v1.md")
	old[0x1a] |= entrySafe // the first entry's flags
	_, err = decodeShard(1, 2, appendSum(old[:len(old)-4]))
	require.Error(t, err, "version 1 has no such flag")
}

func drawAssignment(t *rapid.T) entry {
	e := entry{Assignment: Assignment{
		Owner:            rapid.Int32Min(-1).Draw(t, "owner"),
		OwnerIncarnation: rapid.SampledFrom([]string{"", "a", "run-2", strings.Repeat("x", maxIncarnation)}).Draw(t, "incarnation"),
		Epoch:            rapid.Int32Min(-1).Draw(t, "epoch"),
		State:            State(rapid.IntRange(0, int(numStates)-1).Draw(t, "state")),
		Target:           rapid.SampledFrom([]int32{NoBroker, 0, 7}).Draw(t, "target"),
		Safe:             rapid.Bool().Draw(t, "safe"),
		Jump:             rapid.Bool().Draw(t, "jump"),
		Placed:           rapid.Bool().Draw(t, "placed"),
	}}
	if e.Target != NoBroker {
		e.TargetSince = rapid.Int64Range(0, 1<<60).Draw(t, "since")
		e.Warm = rapid.Bool().Draw(t, "warm")
	}
	if rapid.Bool().Draw(t, "failed") {
		e.Failures = rapid.Int32Range(1, 1<<31-1).Draw(t, "failures")
		e.FailedAt = rapid.Int64Range(0, 1<<60).Draw(t, "at")
		e.Reason = cutReason(rapid.String().Draw(t, "reason"))
	}
	if rapid.Bool().Draw(t, "unready") {
		e.Unready, e.UnreadyAt = rapid.Int32Min(-1).Draw(t, "unready target"), rapid.Int64Range(1, 1<<60).Draw(t, "unready at")
	}
	if rapid.Bool().Draw(t, "later version") {
		var d decoder
		d.extension(&e, append([]byte{0x10}, rapid.SliceOfN(rapid.Byte(), 1, maxExtension-32).Draw(t, "extension")...))
		e.Jump = rapid.Bool().Draw(t, "jump again")
	}
	return e
}

func TestShardRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[frame.PartitionID]entry{}
		for range rapid.IntRange(0, 60).Draw(t, "partitions") {
			id := frame.PartitionID{Partition: rapid.Int32Range(0, 12).Draw(t, "partition")}
			id.Topic[5] = rapid.Byte().Draw(t, "topic") % 3
			want[id] = drawAssignment(t)
		}
		s := &shard{}
		list := make([]idEntry, 0, len(want))
		for id, e := range want {
			list = append(list, idEntry{id, e})
		}
		s.rebuild(list)
		got, err := decodeShard(0, 0, s.encode())
		require.NoError(t, err)
		require.Equal(t, len(want), got.count())
		for id, e := range want {
			require.Equal(t, e.Assignment, got.find(id).Assignment)
			require.True(t, bytes.Equal(e.ext, got.find(id).ext))
		}
		require.Equal(t, s.encode(), got.encode())
	})
}

func TestFullShardIsSmall(t *testing.T) {
	s := &shard{}
	var list []idEntry
	for i := range ShardPartitions {
		id := frame.PartitionID{}
		id.Topic[0], id.Topic[1] = byte(i>>8), byte(i) // every partition of another topic: the worst
		list = append(list, idEntry{id, entry{Assignment: Assignment{Owner: 1000 + int32(i), Epoch: 1 << 20, State: Writing,
			Target: NoBroker, OwnerIncarnation: strings.Repeat("i", 22)}}})
	}
	s.rebuild(list)
	require.Less(t, len(s.encode()), 16<<10)
}

func FuzzDecodeShard(f *testing.F) {
	f.Add(hexExample(f, "../docs/format/etcd.md"))
	f.Add(hexExample(f, "testdata/shard-v1.md"))
	f.Add((&shard{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeShard(0, 0, b)
		if err != nil && len(b) > 5 {
			// Most inputs would end at the checksum: give them a right one.
			fixed := append([]byte(nil), b[:len(b)-4]...)
			s, err = decodeShard(0, 0, appendSum(fixed))
		}
		if err != nil {
			return
		}
		again, err := decodeShard(0, 0, s.encode())
		require.NoError(t, err)
		require.Equal(t, s.count(), again.count())
		s.each(func(id frame.PartitionID, e *entry) bool {
			require.Equal(t, e.Assignment, again.find(id).Assignment)
			return true
		})
	})
}
