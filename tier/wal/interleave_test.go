package wal

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

var histories = flag.Int("histories", 400, "random interleavings per scenario")

// A schedule decides in which order the single calls of several actors reach one bucket, and which of them fail. Actors run in a synctest
// bubble: between two calls everything comes to rest, so that nothing but the choices decides what happens.
type schedule struct {
	mem    *bucket.Memory
	choose func(n int) int // an index below n
	faults int             // that may still happen
	page   int             // keys that a list returns at once, 0 for the usual number: a listing is no snapshot then

	mu      sync.Mutex
	waiting []*step
	log     []string
}

type step struct {
	actor, verb, key string
	put              bool
	go_              chan outcome
}

type outcome int

const (
	takeEffect outcome = iota
	failBefore
	failAfter
)

var errPlanned = errors.New("planned")

// gate is an actor's way to the bucket.
type gate struct {
	s    *schedule
	name string
	open bool // calls pass at once
}

func (g *gate) wait(ctx context.Context, verb, key string, put bool) outcome {
	g.s.mu.Lock()
	if g.open {
		g.s.mu.Unlock()
		return takeEffect
	}
	x := &step{actor: g.name, verb: verb, key: key, put: put, go_: make(chan outcome, 1)}
	g.s.waiting = append(g.s.waiting, x)
	g.s.mu.Unlock()
	select {
	case o := <-x.go_:
		return o
	case <-ctx.Done():
		g.s.mu.Lock()
		defer g.s.mu.Unlock()
		g.s.waiting = slices.DeleteFunc(g.s.waiting, func(o *step) bool { return o == x })
		return failBefore
	}
}

func (g *gate) Get(ctx context.Context, op bucket.Op, key string, off, n int64, dst []byte) (int, bucket.Info, error) {
	if g.wait(ctx, "get", key, false) != takeEffect {
		return 0, bucket.Info{}, bucket.NewError("get", key, bucket.ErrUnavailable, errPlanned)
	}
	return g.s.mem.Get(context.Background(), op, key, off, n, dst)
}

func (g *gate) Put(ctx context.Context, op bucket.Op, key string, body bucket.Body, cond bucket.Condition) (bucket.Info, error) {
	o := g.wait(ctx, "put", key, true)
	if o == failBefore {
		return bucket.Info{}, bucket.NewError("put", key, bucket.ErrUnavailable, errPlanned)
	}
	info, err := g.s.mem.Put(context.Background(), op, key, body, cond)
	if o == failAfter {
		return bucket.Info{}, bucket.NewError("put", key, bucket.ErrUnavailable, errPlanned)
	}
	return info, err
}

func (g *gate) Stat(ctx context.Context, op bucket.Op, key string) (bucket.Info, error) {
	g.wait(ctx, "stat", key, false)
	return g.s.mem.Stat(context.Background(), op, key)
}

func (g *gate) List(ctx context.Context, op bucket.Op, prefix, after string, max int) (bucket.Page, error) {
	if g.wait(ctx, "list", after, false) != takeEffect {
		return bucket.Page{}, bucket.NewError("list", prefix, bucket.ErrUnavailable, errPlanned)
	}
	if g.s.page > 0 {
		max = g.s.page
	}
	return g.s.mem.List(context.Background(), op, prefix, after, max)
}

func (g *gate) Delete(ctx context.Context, op bucket.Op, keys []string) error {
	if g.wait(ctx, "delete", strings.Join(keys, " "), true) != takeEffect {
		return bucket.NewError("delete", keys[0], bucket.ErrUnavailable, errPlanned)
	}
	return g.s.mem.Delete(context.Background(), op, keys)
}

func (g *gate) Uploads(context.Context, bucket.Op, string, bool) ([]bucket.Upload, error) {
	return nil, nil
}

func (g *gate) pass() {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	g.open = true
}

// run releases one call after the other until done says that all actors have ended.
func (s *schedule) run(done func() bool) {
	for {
		synctest.Wait()
		<-time.After(20 * time.Millisecond) // of the bubble's time: whoever paused goes on
		synctest.Wait()
		if done() {
			return
		}
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.mu.Unlock()
			continue
		}
		slices.SortStableFunc(s.waiting, func(a, b *step) int {
			return cmp.Or(cmp.Compare(a.actor, b.actor), cmp.Compare(a.key, b.key), cmp.Compare(a.verb, b.verb))
		})
		i := s.choose(len(s.waiting))
		x := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		o := takeEffect
		if s.faults > 0 {
			if o = outcome(s.choose(3)); o == failAfter && !x.put {
				o = failBefore
			}
			if o != takeEffect {
				s.faults--
			}
		}
		s.log = append(s.log, fmt.Sprintf("%s %s %s %d", x.actor, x.verb, strings.TrimPrefix(x.key, stream.Prefix()), o))
		s.mu.Unlock()
		x.go_ <- o
	}
}

// history is one run: a writer that puts, sets floors and sweeps; sealers; and somebody who sweeps all of the sealed stream once the first
// sealer has read it.
type history struct {
	*schedule
	objects, sealers, faults int
	sweepAll                 bool
	pages                    int

	acked  []uint64
	rolled uint64
	sealed []*Sealed
	seen   []map[uint64]bool // numbers that each sealer sees, nil when the stream was swept before
}

func (h *history) play(t *testing.T, choose func(int) int) {
	mem := bucket.NewMemory()
	h.schedule = &schedule{mem: mem, choose: choose, faults: h.faults, page: h.pages}
	h.acked, h.rolled = nil, 0
	h.sealed, h.seen = make([]*Sealed, h.sealers), make([]map[uint64]bool, h.sealers)
	c, cancel := context.WithCancel(context.Background())
	defer cancel()
	wg := &gate{s: h.schedule, name: "writer"}
	wg.open = true
	o := options(wg)
	o.MaxInFlight, o.CombineEvery = 2, 3
	w, err := Open(c, o)
	require.NoError(t, err)
	wg.open = false
	left := 1 + h.sealers
	end := func() { h.mu.Lock(); left--; h.mu.Unlock() }
	go func() {
		defer end()
		h.write(t, c, w)
	}()
	swept := false
	for i := range h.sealers {
		g := &gate{s: h.schedule, name: fmt.Sprintf("sealer%d", i)}
		go func() {
			defer end()
			s, err := Seal(c, g, tailOp, stream, "life-1")
			if !assertNoError(t, h, err) {
				return
			}
			g.pass()
			h.mu.Lock()
			late := swept
			h.mu.Unlock()
			h.sealed[i] = s
			if !late {
				h.seen[i] = map[uint64]bool{}
				entries, err := s.Entries(c, partition(1))
				assertNoError(t, h, err)
				for _, e := range entries {
					h.seen[i][e.Seq] = true
				}
			}
			if h.sweepAll && i == 0 {
				h.mu.Lock()
				swept = true
				g.open = false
				h.mu.Unlock()
				_, err := SweepDead(c, g, tailOp, stream, func(context.Context, Entry) (bool, error) { return true, nil })
				if h.faults == 0 {
					assertNoError(t, h, err)
				}
			}
		}()
	}
	h.run(func() bool { h.mu.Lock(); defer h.mu.Unlock(); return left == 0 })
	wg.pass()
	h.check(t, w)
	require.NoError(t, w.Close(c))
}

func assertNoError(t *testing.T, h *history, err error) bool {
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.Errorf("%v\n%s", err, strings.Join(h.log, "\n"))
	}
	return err == nil
}

// write is the writer: its floor follows what it has acknowledged, as if everything were rolled at once.
func (h *history) write(t *testing.T, c context.Context, w *Writer) {
	var us []*Upload
	for i := range h.objects {
		b := w.NewBuilder()
		fill(t, b, makeBatch(t, partition(1), 1, int64(i), 1, 10))
		u, err := w.Put(b)
		if err != nil {
			break
		}
		us = append(us, u)
		if i%2 == 1 {
			if a := w.Stats().Acked; a > 0 {
				h.rolled = max(h.rolled, a)
				w.SetFloor(a)
			}
			_, err := w.Sweep(c, 1)
			if h.faults == 0 {
				assertNoError(t, h, err)
			}
		}
	}
	for _, u := range us {
		<-u.Done()
		if u.Err() == nil {
			h.acked = append(h.acked, u.Seq)
		}
	}
}

func (h *history) check(t *testing.T, w *Writer) {
	story := strings.Join(h.log, "\n")
	for i, s := range h.sealed {
		if s == nil {
			return // told already
		}
		require.Equal(t, h.sealed[0].End, s.End, "sealers disagree\n%s", story)
		for _, seq := range h.acked {
			require.Less(t, seq, s.End, "acknowledged behind the seal\n%s", story)
			if h.seen[i] != nil && seq >= h.rolled {
				require.True(t, h.seen[i][seq], "object %d was acknowledged, and sealer %d does not see it\n%s", seq, i, story)
			}
		}
	}
	require.True(t, slices.IsSorted(h.acked))
	for i, seq := range h.acked {
		require.EqualValues(t, i+1, seq, "acknowledged out of order\n%s", story)
	}
	// Whoever comes later sees the same end, and the writer gets nothing through any more.
	if len(h.sealed) == 0 {
		return
	}
	s, err := Seal(context.Background(), h.mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.Equal(t, h.sealed[0].End, s.End, story)
	for range 3 {
		u, err := w.Put(w.NewBuilder())
		if err == nil {
			<-u.Done()
			err = u.Err()
		}
		require.ErrorIs(t, err, ErrSealed, story)
	}
}

// warm makes what must not be made inside a bubble.
func warm() {
	b, _ := appendCombined(nil, []numbered{{seq: 1, footer: []byte("x")}})
	_, _ = decodeCombined(b, 2)
}

// TestAllInterleavings goes through every order of the calls of a writer and a sealer.
func TestAllInterleavings(t *testing.T) {
	warm()
	n := 0
	var path []int // choices to repeat
	for {
		var widths []int
		at := 0
		synctest.Test(t, func(t *testing.T) {
			h := &history{objects: 4, sealers: 1}
			h.play(t, func(width int) int {
				if at == len(path) {
					path = append(path, 0)
				}
				widths = append(widths, width)
				at++
				return min(path[at-1], width-1)
			})
		})
		n++
		if t.Failed() {
			t.Fatalf("choices %v", path)
		}
		path = path[:at]
		for len(path) > 0 && path[len(path)-1] >= widths[len(path)-1]-1 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 || testing.Short() && n > 500 {
			break
		}
		path[len(path)-1]++
	}
	t.Logf("%d interleavings", n)
	require.Greater(t, n, 400)
}

// TestRandomInterleavings: more actors than can be gone through, and calls that fail, before or after they took effect.
func TestRandomInterleavings(t *testing.T) {
	warm()
	for name, h := range map[string]history{
		"racing sealers":            {objects: 4, sealers: 3},
		"long stream":               {objects: 14, sealers: 2},
		"sweep of all":              {objects: 8, sealers: 3, sweepAll: true},
		"listings in pieces":        {objects: 12, sealers: 2, pages: 1},
		"pieces, and a sweep":       {objects: 10, sealers: 3, pages: 2, sweepAll: true},
		"faults":                    {objects: 6, sealers: 2, faults: 3},
		"faults and a sweep of all": {objects: 8, sealers: 3, sweepAll: true, faults: 4},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range *histories {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 1))
					// Some actors are slow for a while: a uniform choice hardly ever leaves one far behind.
					stuck, for_ := 0, 0
					h.play(t, func(n int) int {
						if for_--; for_ < 0 {
							stuck, for_ = rng.IntN(4), rng.IntN(30)
						}
						if k := rng.IntN(n); k != stuck || n == 1 {
							return k
						}
						return rng.IntN(n)
					})
				})
				if t.Failed() {
					t.Fatalf("seed %d, run %d", seed, i)
				}
			}
		})
	}
}
