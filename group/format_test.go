package group

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestKeysAreKafkas reads the keys with another implementation of Kafka's formats.
func TestKeysAreKafkas(t *testing.T) {
	var o kmsg.OffsetCommitKey
	require.NoError(t, o.ReadFrom(appendOffsetKey(nil, "g", "topic", 7)))
	require.Equal(t, kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "topic", Partition: 7}, o)
	var g kmsg.GroupMetadataKey
	require.NoError(t, g.ReadFrom(appendKey(nil, kindClassic, "g")))
	require.Equal(t, kmsg.GroupMetadataKey{Version: 2, Group: "g"}, g)
}

// TestOldValues: offsets and groups that older brokers wrote are read in every version they had.
func TestOldValues(t *testing.T) {
	for v := int16(0); v <= offsetValueVersion; v++ {
		in := kmsg.OffsetCommitValue{Version: v, Offset: 5, LeaderEpoch: 3, Metadata: "m", CommitTimestamp: 9, ExpireTimestamp: 11}
		o := readOffset(in.AppendTo(nil))
		require.NotNil(t, o, "version %d", v)
		want := offset{at: 5, committed: 9, expires: -1, epoch: -1, metadata: "m"}
		if v >= 3 {
			want.epoch = 3
		}
		if v == 1 {
			want.expires = 11
		}
		require.Equal(t, want, *o, "version %d", v)
	}
	for v := int16(0); v <= 4; v++ {
		p := "range"
		in := kmsg.GroupMetadataValue{Version: v, ProtocolType: "consumer", Generation: 4, Protocol: &p, Leader: &p,
			Members: []kmsg.GroupMetadataValueMember{{MemberID: "m", SessionTimeoutMillis: 10000, Subscription: []byte("s"), Assignment: []byte("a")}}}
		w := newWorld(Options{})
		w.log = []Record{{appendKey(nil, kindClassic, "g"), in.AppendTo(nil)}}
		w.boot()
		require.Zero(t, w.m.badRecords)
		require.Equal(t, StateStable, w.m.groups["g"].state())
		require.Equal(t, w.log, snapshotOf(w.m))
	}
	for _, bad := range []string{"", "00", "0005", "ffff", "000400"} {
		b, err := hex.DecodeString(bad)
		require.NoError(t, err)
		require.Nil(t, readOffset(b))
		_, ok := readClassic(b)
		require.False(t, ok)
	}
}

// TestConsumerValues holds the bytes of the consumer-group records, which must be readable for ever.
func TestConsumerValues(t *testing.T) {
	text := func(s string) *string { return &s }
	id := [16]byte{1, 2, 3}
	a := assignment{{id, []int32{1, 5}}}
	const parts = "02" + "01020300000000000000000000000000" + "03" + "00000001" + "00000005" + "00"
	meta := memberMeta{instance: text("i"), clientID: "c", host: "/h", topics: []string{"t", "u"}, regex: text("x.*"), rebalance: 300, assignor: nil}
	const fields = "0000" + "0269" + "00" + "0263" + "032f68" + "03" + "0274" + "0275" + "04782e2a" + "0000012c" + "00"
	classic := meta
	classic.classic = &classicMeta{10000, []protocol{{"range", []byte{7}}}}
	// One tagged field, number 0, of 16 bytes: it is there, session, one protocol of name, bytes and no tags; no tags.
	const tagged = "01" + "00" + "10" + "01" + "00002710" + "02" + "0672616e6765" + "0207" + "00" + "00"
	c := consumer{epoch: 3, hash: 258}
	now := current{epoch: 4, previous: 3, state: 1, assigned: a, revoking: nil}
	r := regex{topics: []string{"t"}, version: 2, timestamp: 3}
	for name, v := range map[string]struct {
		bytes []byte
		want  string
	}{
		"epoch":        {c.appendEpoch(), "0000" + "00000003" + "01" + "00" + "08" + "0000000000000102"},
		"target epoch": {appendTargetEpoch(3), "0000" + "00000003" + "00"},
		"target":       {appendTarget(a), "0000" + parts + "00"},
		"current":      {now.append(), "0000" + "00000004" + "00000003" + "01" + parts + "01" + "00"},
		"member":       {meta.append(), fields + "00"},
		"classic":      {classic.append(), fields + tagged},
		"regex":        {r.append(), "0000" + "02" + "0274" + "0000000000000002" + "0000000000000003" + "00"},
	} {
		require.Equal(t, v.want, hex.EncodeToString(v.bytes), name)
	}
	for _, in := range []memberMeta{meta, classic} {
		out, ok := readMember(in.append())
		require.True(t, ok)
		require.Equal(t, in, out)
	}
}
