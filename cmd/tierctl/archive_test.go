package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
	"github.com/tierbroker/tierbroker/tier/wal"
)

const (
	testEpoch = 0
	testTime  = int64(1_438_191_704_000) // of the first record, one second apart
)

// sliceSource gives batches that lie in memory.
type sliceSource []batchOf

type batchOf struct {
	b []byte
	i tier.BatchInfo
}

func (s sliceSource) Batches(yield func(b []byte, e tier.BatchInfo) error) error {
	for _, x := range s {
		if err := yield(x.b, x.i); err != nil {
			return err
		}
	}
	return nil
}

// tenRecords is a batch of the records value-<base> to value-<base+9>.
func tenRecords(base int64) batchOf {
	b := batch.NewBuilder(batch.Zstd, batch.BuilderOptions{BaseOffset: base})
	for i := range int64(10) {
		b.Add(testTime+1000*(base+i), []byte("k"), fmt.Appendf(nil, "value-%d", base+i), nil)
	}
	raw := b.Bytes()
	return batchOf{raw, tier.BatchInfo{Base: base, Last: base + 9, MaxTimestamp: testTime + 1000*(base+9), AppendTime: testTime, Epoch: testEpoch, Records: 10, Size: len(raw)}}
}

// writeArchive makes a bucket with the topics logs (2 partitions of 60 records in
// 3 objects) and other (1 partition, 20 records in 1 object).
func writeArchive(t *testing.T) (dir string, id frame.PartitionID) {
	t.Helper()
	t.Setenv("TIERCTL_CONTEXTS", filepath.Join(t.TempDir(), "none.yaml"))
	dir = t.TempDir()
	b, err := bucket.OpenDir(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	_, err = catalog.Open(t.Context(), catalog.Options{Bucket: b, ClusterID: "c", Incarnation: "i", Create: true})
	require.NoError(t, err)
	a := tier.New(tier.Options{Heads: b, ClusterID: "c", ClusterIncarnation: "i"})
	owner := tier.Owner{Broker: 1, Incarnation: "run", Epoch: testEpoch}
	write := func(topic string, id frame.PartitionID, objects int64) {
		h, err := a.Claim(t.Context(), id, topic, nil, owner)
		require.NoError(t, err)
		for n := range objects {
			start := n * 20
			e, err := a.Upload(t.Context(), tier.ObjectSpec{ID: id, Topic: topic, Epoch: testEpoch, Start: start, End: start + 20, Now: testTime},
				sliceSource{tenRecords(start), tenRecords(start + 10)})
			require.NoError(t, err)
			h, err = a.CommitRoll(t.Context(), id, h, owner, []tier.Extent{e}, nil)
			require.NoError(t, err)
		}
	}
	logs, other := frame.TopicID{15: 1}, frame.TopicID{15: 2}
	write("logs", frame.PartitionID{Topic: logs, Partition: 0}, 3)
	write("logs", frame.PartitionID{Topic: logs, Partition: 1}, 3)
	write("other", frame.PartitionID{Topic: other}, 1)
	require.NoError(t, a.Close())
	return dir, frame.PartitionID{Topic: logs}
}

// tierctl runs a command line and returns its exit code and standard output.
func tierctl(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(args)
	return exitCode(context.Background(), root.ExecuteContext(t.Context())), out.String()
}

func TestArchiveList(t *testing.T) {
	dir, id := writeArchive(t)
	url := "file://" + dir
	code, out := tierctl(t, "archive", "ls", "--bucket", url)
	require.Equal(t, 0, code)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, []string{"logs", id.Topic.String(), "2", "120"}, strings.Fields(lines[1])[:4])

	code, out = tierctl(t, "archive", "ls", "logs", "--bucket", url)
	require.Equal(t, 0, code)
	require.Contains(t, out, "2015-07-29T17:41:44.000Z")
	require.Contains(t, out, "2015-07-29T17:42:43.000Z")

	code, out = tierctl(t, "archive", "ls", "logs/1", "--bucket", url, "-o", "json")
	require.Equal(t, 0, code)
	var topics []archiveTopic
	require.NoError(t, json.Unmarshal([]byte(out), &topics))
	require.Len(t, topics, 1)
	require.Len(t, topics[0].Partitions, 1)
	p := topics[0].Partitions[0]
	require.Equal(t, int32(1), p.Partition)
	require.Equal(t, int64(60), p.End)
	require.Len(t, p.Extents, 3)
	require.Equal(t, testTime+20_000, p.Extents[1].MinTimestamp)
	require.Equal(t, testTime+39_000, p.Extents[1].MaxTimestamp)

	for _, args := range [][]string{{"nope"}, {"logs/7"}} {
		code, _ = tierctl(t, append([]string{"archive", "ls", "--bucket", url}, args...)...)
		require.Equal(t, exitFailed, code)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--bucket", "x"}, {"ls", "--bucket", url, "logs/x"}, {"cat", "--bucket", url}} {
		code, _ = tierctl(t, append([]string{"archive"}, args...)...)
		require.Equal(t, exitUsage, code, "%v", args)
	}
	code, _ = tierctl(t, "archive", "ls", "--bucket", "file://"+dir+"/none")
	require.Equal(t, exitFailed, code)
}

func TestArchiveCat(t *testing.T) {
	dir, id := writeArchive(t)
	values := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "value-%d\n", i)
		}
		return b.String()
	}
	at := func(n int64) string { return fmt.Sprintf("@%d", testTime+1000*n) }
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"all":               {[]string{"logs/0"}, values(0, 60)},
		"both partitions":   {[]string{"logs"}, values(0, 60) + values(0, 60)},
		"by id":             {[]string{id.Topic.String() + "/1", "--count", "3"}, values(0, 3)},
		"middle of a batch": {[]string{"logs/0", "--from", "13", "--to", "27"}, values(13, 27)},
		"times":             {[]string{"logs/0", "--from", at(19), "--to", at(41)}, values(19, 41)},
		"between two times": {[]string{"logs/0", "--from", fmt.Sprintf("@%d", testTime+18_001), "--to", at(20)}, values(19, 20)},
		"after the end":     {[]string{"logs/0", "--from", at(1000)}, ""},
		"count over topics": {[]string{"logs", "--count", "61"}, values(0, 60) + values(0, 1)},
		"template":          {[]string{"other", "--count", "1", "--format", `{{.Topic}} {{.Offset}} {{.Key}}\n`}, "other 0 k\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := tierctl(t, append([]string{"archive", "cat", "--bucket", "file://" + dir}, tc.args...)...)
			require.Equal(t, 0, code)
			require.Equal(t, tc.want, out)
		})
	}
}

func TestArchiveVerify(t *testing.T) {
	dir, id := writeArchive(t)
	url := "file://" + dir
	code, out := tierctl(t, "archive", "verify", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Equal(t, "3 partitions, 7 extents, 14 batches, 140 records, ", out[:strings.Index(out, "records, ")+9])
	code, out = tierctl(t, "archive", "verify", "--quick", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "no records read: 0 problems, 0 notes")

	objects, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(tier.DataPrefix(id)), "*"))
	require.NoError(t, err)
	require.Len(t, objects, 3)
	data, err := os.ReadFile(objects[1])
	require.NoError(t, err)
	data[100] ^= 1
	require.NoError(t, os.WriteFile(objects[1], data, 0o600))
	code, out = tierctl(t, "archive", "verify", "logs/0", "--bucket", url, "-o", "json")
	require.Equal(t, exitFailed, code)
	var r verifyResult
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.NotEmpty(t, r.Problems)
	require.Equal(t, int64(20), r.Problems[0].Offset)

	require.NoError(t, os.Remove(filepath.Join(dir, filepath.FromSlash(tier.HeadKey(frame.PartitionID{Topic: frame.TopicID{15: 2}})))))
	code, out = tierctl(t, "archive", "verify", "--quick", "--bucket", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "no head")
}

// A bucket without a cluster's root is no archive in which all is well.
func TestArchiveVerifyElsewhere(t *testing.T) {
	t.Setenv("TIERCTL_CONTEXTS", filepath.Join(t.TempDir(), "none.yaml"))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	code, out := tierctl(t, "archive", "verify", "--bucket", "file://"+dir)
	require.Equal(t, exitFailed, code, out)
	require.Contains(t, out, "no cluster root")
}

func TestDumpObjectAndHead(t *testing.T) {
	dir, id := writeArchive(t)
	url := "file://" + dir
	objects, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(tier.DataPrefix(id)), "*"))
	require.NoError(t, err)
	key, err := filepath.Rel(dir, objects[2])
	require.NoError(t, err)
	code, out := tierctl(t, "dump", "object", key, "--bucket", url, "-o", "json")
	require.Equal(t, 0, code, out)
	var d objectDump
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, int64(40), d.Identity.Start)
	require.NotEmpty(t, d.Blocks)
	code, out = tierctl(t, "dump", "object", key, "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "[40, 60)")
	code, out = tierctl(t, "dump", "object", key, "--batches", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 2)
	code, out = tierctl(t, "dump", "head", "logs/1", "--bucket", url)
	require.Equal(t, 0, code, out)
	var head struct {
		Topic     string
		Partition int32
		End       int64
	}
	require.NoError(t, json.Unmarshal([]byte(out), &head))
	require.Equal(t, "logs", head.Topic)
	require.Equal(t, int32(1), head.Partition)
	require.Equal(t, int64(60), head.End)
	code, _ = tierctl(t, "dump", "object", "data/none", "--bucket", url)
	require.Equal(t, exitFailed, code)
}

func TestDumpLocal(t *testing.T) {
	t.Setenv("TIERCTL_CONTEXTS", filepath.Join(t.TempDir(), "none.yaml"))
	dir := t.TempDir()
	id := frame.PartitionID{Topic: frame.TopicID{15: 1}, Partition: 4}
	log, _, err := segment.Open(segment.Options{Dir: filepath.Join(dir, "log"), FileBytes: 1 << 20}, 0, func(segment.Frame) error { return nil })
	require.NoError(t, err)
	x := tenRecords(0)
	pos, gen, err := log.Enqueue(&segment.Entry{Header: frame.Header{Type: frame.Data, ID: id, RecordCount: 10}, Payload: x.b, Sync: true})
	require.NoError(t, err)
	require.NoError(t, log.Written(pos, gen))
	require.NoError(t, log.Sync(t.Context()))
	require.NoError(t, log.Close())
	code, out := tierctl(t, "dump", "commitlog", dir)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, `"id":"`+id.String()+`"`)
	require.Contains(t, out, `"frames":1`)
	code, out = tierctl(t, "dump", "commitlog", dir, "--partition", "5", "--summary")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, `"frames":0`)

	s, err := index.Open(index.Options{Dir: filepath.Join(dir, "index")})
	require.NoError(t, err)
	b := s.NewBatch()
	b.PutEntry(id, index.Entry{Base: 0, Last: 9, Position: pos, Length: uint32(len(x.b)), Records: 10}, true)
	b.PutMeta(id, []byte("m"))
	b.SetCheckpoint(pos, nil)
	require.NoError(t, b.Commit())
	b.Close()
	require.NoError(t, s.Flush())
	code, out = tierctl(t, "dump", "index", dir, "--entries")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, `"base":0,"last":9`)
	require.Contains(t, out, `"entries":1`)
	require.NoError(t, s.Close())
	code, _ = tierctl(t, "dump", "index", dir, "--topic-id", "x")
	require.Equal(t, exitUsage, code)
	code, _ = tierctl(t, "dump", "commitlog", t.TempDir())
	require.Equal(t, exitFailed, code)
}

// addStream gives logs/0 twenty more records, in a WAL object that its head has
// adopted, and ten more in the stream of a broker that is alive.
func addStream(t *testing.T, dir string, id frame.PartitionID) (key string) {
	t.Helper()
	b, err := bucket.OpenDir(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	a := tier.New(tier.Options{Heads: b, ClusterID: "c", ClusterIncarnation: "i"})
	defer a.Close()
	put := func(run string, bases ...int64) wal.StreamID {
		stream := wal.StreamID{Broker: 1, Incarnation: run}
		w, err := wal.Open(t.Context(), wal.Options{Bucket: b, Stream: stream, ClusterID: "c", ClusterIncarnation: "i"})
		require.NoError(t, err)
		o := w.NewBuilder()
		o.Begin(wal.Part{ID: id, Topic: "logs", Epoch: testEpoch})
		for _, base := range bases {
			x := tenRecords(base)
			h, err := batch.ParseHeader(x.b)
			require.NoError(t, err)
			require.NoError(t, o.Add(x.b, &h, testTime))
		}
		u, err := w.Put(o)
		require.NoError(t, err)
		<-u.Done()
		require.NoError(t, u.Err())
		require.NoError(t, w.Close(t.Context()))
		return stream
	}
	dead := put("run", 60, 70)
	put("next", 80)
	sealed, err := wal.Seal(t.Context(), b, toolOp("logs"), dead, "i")
	require.NoError(t, err)
	entries, err := sealed.Entries(t.Context(), id)
	require.NoError(t, err)
	h, err := a.Load(t.Context(), id)
	require.NoError(t, err)
	_, err = a.Adopt(t.Context(), id, h, h.OwnerOf(), []tier.Extent{entries[0].Extent()}, nil, nil)
	require.NoError(t, err)
	return entries[0].Key
}

func TestArchiveWithStreams(t *testing.T) {
	dir, id := writeArchive(t)
	url := "file://" + dir
	key := addStream(t, dir, id)
	code, out := tierctl(t, "archive", "cat", "logs/0", "--from", "58", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Equal(t, 22, strings.Count(out, "value-"))
	require.Contains(t, out, "value-79")
	code, out = tierctl(t, "archive", "ls", "logs/0", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, key)
	for _, args := range [][]string{nil, {"--quick"}} {
		code, out = tierctl(t, append([]string{"archive", "verify", "--bucket", url}, args...)...)
		require.Equal(t, 0, code, out)
		require.Contains(t, out, "2 WAL streams")
		require.Contains(t, out, "0 problems, 0 notes")
	}
	code, out = tierctl(t, "archive", "verify", "logs/0", "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "1 WAL stream,")
	code, out = tierctl(t, "dump", "wal", key, "--bucket", url)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, `"parts":1`)
	require.Contains(t, out, `"start":60,"end":80`)

	path := filepath.Join(dir, filepath.FromSlash(key))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	flip := func(at int) {
		bad := bytes.Clone(data)
		bad[at] ^= 1
		require.NoError(t, os.WriteFile(path, bad, 0o600))
	}
	flip(200) // in a batch: noticed from both ends
	code, out = tierctl(t, "archive", "verify", "--bucket", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "2 problems")
	code, _ = tierctl(t, "archive", "verify", "--quick", "--bucket", url)
	require.Equal(t, 0, code)
	flip(len(data) - 110) // in the footer: the part can be read, and nothing describes it
	code, out = tierctl(t, "archive", "verify", "logs/0", "--bucket", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "no footer of a WAL object describes")
	require.NoError(t, os.Remove(path))
	code, out = tierctl(t, "archive", "verify", "logs/0", "--bucket", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "object is gone")
}
