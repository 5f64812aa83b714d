package wal

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// tracer prints every bucket call of a scenario in order: order and cost are reviewed text.
type tracer struct {
	t   *testing.T
	mu  sync.Mutex
	out strings.Builder
}

var compressed = regexp.MustCompile(`(put|get) (\S+008) [0-9+]+`)

func (x *tracer) line(s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s = strings.ReplaceAll(s, stream.Prefix(), "STREAM/")
	x.out.WriteString("  " + compressed.ReplaceAllString(s, "$1 $2 some") + "\n")
}

func (x *tracer) say(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(&x.out, format+"\n", args...)
}

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

func TestTrace(t *testing.T) {
	x := &tracer{t: t}
	mem := bucket.NewMemory()
	f := bucket.NewFault(mem, nil)
	b := bucket.NewTrace(f, x.line)
	x.say("open")
	w := open(t, options(b))
	next := int64(0)
	one := func() *Upload {
		u := put(t, w, makeBatch(t, partition(1), 0, next, 1, 10))
		next++
		return u
	}
	x.say("two objects")
	require.NoError(t, wait(t, one()))
	require.NoError(t, wait(t, one()))
	x.say("a put whose answer is lost")
	f.SetPlan(bucket.FailAfterAt(f.Calls()+1, errDown))
	require.NoError(t, wait(t, one()))
	x.say("a put that does not arrive")
	f.SetPlan(bucket.FailAt(f.Calls()+1, errDown))
	require.NoError(t, wait(t, one()))
	f.SetPlan(nil)
	x.say("sweep with nothing to do: nothing")
	_, err := w.Sweep(context.Background(), 1)
	require.NoError(t, err)
	w.SetFloor(3)
	x.say("the object that carries the floor")
	require.NoError(t, wait(t, one()))
	x.say("sweep")
	_, err = w.Sweep(context.Background(), 1)
	require.NoError(t, err)
	x.say("up to the object with combined footers, and two more")
	for range 5 {
		require.NoError(t, wait(t, one()))
	}
	x.say("streams")
	_, err = List(context.Background(), b)
	require.NoError(t, err)
	x.say("is it sealed?")
	_, err = Find(context.Background(), b, tailOp, stream)
	require.ErrorIs(t, err, ErrNotSealed)
	x.say("seal")
	s, err := Seal(context.Background(), b, tailOp, stream, "life-1")
	require.NoError(t, err)
	x.say("entries of the first partition that asks")
	_, err = s.Entries(context.Background(), partition(1))
	require.NoError(t, err)
	x.say("entries of all others: nothing")
	_, err = s.Entries(context.Background(), partition(2))
	require.NoError(t, err)
	x.say("the next successor finds the seal")
	_, err = Seal(context.Background(), b, tailOp, stream, "life-1")
	require.NoError(t, err)
	x.say("the writer comes back")
	require.ErrorIs(t, wait(t, one()), ErrSealed)
	x.say("sweep of the dead stream, with all but object 5 dead")
	_, err = SweepDead(context.Background(), b, tailOp, stream, func(_ context.Context, e Entry) (bool, error) { return e.Seq != 5, nil })
	require.NoError(t, err)
	x.say("and the rest")
	_, err = SweepDead(context.Background(), b, tailOp, stream, func(context.Context, Entry) (bool, error) { return true, nil })
	require.NoError(t, err)
	x.golden("life")
}
