package tier

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

var update = flag.Bool("update", false, "write the golden files again")

// tracer prints every bucket call of a scenario in order: order and cost are reviewed text. Random parts of keys are numbered.
type tracer struct {
	*world
	out  strings.Builder
	uids map[string]string
}

var sizePattern = regexp.MustCompile(`[0-9]+ bytes`)

var uidPattern = regexp.MustCompile(`[0-9a-f]{24}`)

func newTracer(t *testing.T) *tracer {
	x := &tracer{world: newWorld(t, 77), uids: map[string]string{}}
	x.b = bucket.NewTrace(x.mem, func(line string) {
		line = strings.ReplaceAll(line, place(x.id), "PLACE")
		if strings.Contains(line, " head/") || strings.Contains(line, " page/") {
			line = sizePattern.ReplaceAllString(line, "some bytes") // compressed random keys
		}
		x.out.WriteString("  " + uidPattern.ReplaceAllStringFunc(line, x.name) + "\n")
	})
	x.open()
	return x
}

func (x *tracer) name(uid string) string {
	if x.uids[uid] == "" {
		x.uids[uid] = fmt.Sprintf("uid%d", len(x.uids)+1)
	}
	return x.uids[uid]
}

func (x *tracer) say(format string, args ...any) { fmt.Fprintf(&x.out, format+"\n", args...) }

func (x *tracer) golden(name string) {
	path := "testdata/trace/" + name + ".txt"
	if *update {
		require.NoError(x.t, os.MkdirAll("testdata/trace", 0o755))
		require.NoError(x.t, os.WriteFile(path, []byte(x.out.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(x.t, err)
	require.Equal(x.t, string(want), x.out.String())
}

func TestTraceOfWrites(t *testing.T) {
	x := newTracer(t)
	x.say("first claim")
	x.claim()
	x.say("claim of what is held already")
	x.claim()
	x.write(10)
	x.say("roll of one object")
	x.roll()
	x.say("two objects in one swap")
	x.step("two")
	x.say("claim of the next owner")
	x.step("claim")
	for len(x.h.Extents) < 11 {
		b := x.a.opts
		x.a.opts.Heads, x.a.opts.Roll = x.mem, x.mem
		x.step("roll")
		x.a.opts = b
	}
	x.say("roll that moves extents into a page")
	x.step("roll")
	x.golden("writes")
}

// quiet prepares without a trace.
func (x *tracer) quiet(f func()) {
	o := x.a.opts
	for _, b := range []*bucket.Bucket{&x.a.opts.Heads, &x.a.opts.Roll, &x.a.opts.Cold, &x.a.opts.Sweep} {
		*b = x.mem
	}
	f()
	x.a.opts = o
}

func TestTraceOfReads(t *testing.T) {
	x := newTracer(t)
	x.quiet(func() {
		x.claim()
		for range 40 {
			x.write(40)
			x.roll()
		}
	})
	x.a.meta.close()
	x.open()
	x.say("load the head")
	h, err := x.a.Load(ctx(t), x.id)
	require.NoError(t, err)
	read := func(offset int64) {
		b, err := x.a.Read(ctx(t), h, offset, 3000, coldOp)
		require.NoError(t, err)
		b.Release()
	}
	x.say("first read: pages, block table, blocks")
	read(10)
	x.say("second read in the same object: blocks")
	read(30)
	x.say("read of the newest object: block table, blocks")
	read(h.End - 1)
	x.say("lookup by time: block table, one block")
	_, _, _, _, err = x.a.FindTime(ctx(t), h, x.recs[len(x.recs)/2].ts, 0)
	require.NoError(t, err)
	x.say("lookup by a time that is too late: nothing")
	_, _, _, _, err = x.a.FindTime(ctx(t), h, x.now+1, 0)
	require.NoError(t, err)
	x.say("largest timestamp")
	_, _, _, _, err = x.a.MaxTimestamp(ctx(t), h)
	require.NoError(t, err)
	x.golden("reads")
}

func TestTraceOfWALExtents(t *testing.T) {
	x := newTracer(t)
	x.quiet(func() {
		x.claim()
		x.write(4)
		x.roll()
	})
	x.write(6)
	exts, _ := x.walObject(x.h, 3)
	x.say("adoption: one swap, nothing is copied")
	h, err := x.a.Adopt(ctx(t), x.id, x.h, x.owner, exts, []byte("p"), nil)
	require.NoError(t, err)
	x.h = h
	read := func(offset int64) {
		b, err := x.a.Read(ctx(t), h, offset, 3000, coldOp)
		require.NoError(t, err)
		b.Release()
	}
	x.say("first read of a part: all of it, then the blocks that are asked for")
	read(exts[0].Start)
	x.say("second read: blocks")
	read(exts[0].Start)
	x.say("merge: each part is read for checksums, and again to send")
	require.True(t, x.merge())
	x.say("sweep without delay: the WAL object stays")
	x.h, _, err = x.a.SweepPartition(ctx(t), x.id, x.h, x.now, 0)
	require.NoError(t, err)
	x.golden("wal")
}

func TestTraceOfMaintenance(t *testing.T) {
	x := newTracer(t)
	x.quiet(func() {
		x.claim()
		for range 14 {
			x.write(4)
			x.roll()
		}
	})
	x.say("merge of neighbours")
	require.True(t, x.merge())
	x.say("retention with nothing to do")
	x.retain(Retention{Ms: 1 << 40, Bytes: 1 << 40, Now: x.now})
	x.say("retention that cuts inside a page")
	x.retain(Retention{Ms: -1, Bytes: x.h.Bytes - x.liveExtents(x.h)[0].Bytes, Now: x.now})
	x.say("delete records")
	x.deleteTo(x.h.End - 3)
	x.say("sweep before the delay: nothing")
	h, _, err := x.a.SweepDropped(ctx(t), x.id, x.h, x.now, time.Hour)
	require.NoError(t, err)
	require.Same(t, x.h, h)
	x.say("sweep of what was dropped")
	x.h, _, err = x.a.SweepDropped(ctx(t), x.id, x.h, x.now, 0)
	require.NoError(t, err)
	x.say("sweep with listing")
	x.h, _, err = x.a.SweepPartition(ctx(t), x.id, x.h, x.now, 0)
	require.NoError(t, err)
	x.say("tombstone")
	_, err = x.a.Tombstone(ctx(t), x.id, x.h, x.owner, x.now)
	require.NoError(t, err)
	x.say("destroy")
	done, err := x.a.DestroyPartition(ctx(t), x.id, 0, x.now)
	require.NoError(t, err)
	require.True(t, done)
	x.golden("maintenance")
}
