package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

var errDisk = errors.New("the disk is broken")

// gate makes a call wait until it is opened, and tells when one has come.
type gate struct {
	came, open chan struct{}
	once       sync.Once
}

func newGate() *gate { return &gate{came: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) pass() {
	g.once.Do(func() { close(g.came) })
	<-g.open
}

// A write fails while an fdatasync of what was written before is under way, and then that fails, too: the second
// failure loses more than the first one said. Nobody may be told that the batch in between is stored, and no offset may
// be assigned before its partition has gone back.
func TestSecondFailureLosesMore(t *testing.T) {
	for round := range 20 {
		w := newWorld(t)
		fs := newHookFS()
		w.fs = fs
		w.open()
		p := w.topic("t", nil)
		var model []rec
		model = append(model, produce(t, p, batch.None, []string{"first"}, []int64{1})...)

		g := newGate()
		fs.set(func(op, _ string) error {
			if op == "sync" {
				g.pass()
				return errDisk
			}
			return nil
		})
		a := begin(t, p, "a")
		<-g.came
		var failed atomic.Bool
		fs.set(func(op, _ string) error {
			switch {
			case op == "sync" && !failed.Load():
				g.pass()
				return errDisk
			case op == "writev" && failed.CompareAndSwap(false, true):
				return errDisk
			}
			return nil
		})
		b, err := p.Append(oneRecord("b"), AppendOptions{Epoch: -1, Now: w.now.Load()})
		require.NoError(t, err)
		require.ErrorIs(t, b.Written(), ErrStorage)
		// Producers that try again and again, as soon as the log takes anything.
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		for k := range 2 {
			wg.Go(func() {
				for i := 0; i < 20; {
					select {
					case <-stop:
						return
					default:
					}
					v := fmt.Sprintf("c%d-%d", k, i)
					ack, err := tryAppend(p, oneRecord(v))
					if err == nil {
						mu.Lock()
						model = append(model, rec{ack.BaseOffset, 1, v})
						mu.Unlock()
						i++
					}
				}
			})
		}
		close(g.open)
		require.ErrorIs(t, wait(&a), ErrStorage, "round %d: the batch was lost by the second failure", round)
		require.ErrorIs(t, wait(&b), ErrStorage)
		timer := time.AfterFunc(20*time.Second, func() { close(stop) })
		wg.Wait()
		timer.Stop()
		for _, again := range []bool{false, true} {
			got := map[int64]string{}
			for _, r := range readAll(t, p) {
				got[r.offset] = r.value
			}
			seen := map[int64]string{}
			for _, r := range model {
				require.Empty(t, seen[r.offset], "offset %d was given to %s and %s", r.offset, seen[r.offset], r.value)
				seen[r.offset] = r.value
				require.Equal(t, r.value, got[r.offset], "round %d offset %d, after a restart: %v", round, r.offset, again)
			}
			require.Len(t, model, 41)
			if !again {
				w.reopen()
				p = w.await(p.ID())
			}
		}
		w.close()
	}
}

func oneRecord(v string) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
	b.Add(1, []byte("k"), []byte(v), nil)
	return b.Bytes()
}

// begin appends one record and returns when it is written.
func begin(t testing.TB, p *Partition, v string) Ack {
	t.Helper()
	ack, err := p.Append(oneRecord(v), AppendOptions{Epoch: -1, Now: p.set.o.Now()})
	require.NoError(t, err)
	require.NoError(t, ack.Written())
	return ack
}

func wait(a *Ack) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return a.Durable(ctx)
}
