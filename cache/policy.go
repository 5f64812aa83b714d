package cache

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	"github.com/dgraph-io/ristretto/v2"
)

// policy asks ristretto which chunks are worth their memory. It holds no references: what it says changes the order of
// eviction only, so it may drop sets, call back late or twice, and pass its cost.
type policy struct {
	r    *ristretto.Cache[uint64, *chunk]
	seed maphash.Seed

	mu     sync.RWMutex // ristretto's Close must not meet a Get
	closed bool
}

// newPolicy gives ristretto half of the budget: the rest is for what is in flight, read ahead, being read in order, or on its way out.
// demote is called, with no lock of the cache held, for each chunk that ristretto does not want, or no longer.
func newPolicy(budget, chunkBytes int64, demote func(*chunk)) *policy {
	cost := max(budget/2, chunkBytes)
	r, err := ristretto.NewCache(&ristretto.Config[uint64, *chunk]{
		NumCounters:        max(10*budget/chunkBytes, 1000),
		MaxCost:            cost,
		BufferItems:        64,
		IgnoreInternalCost: true,
		OnExit: func(ch *chunk) {
			if ch != nil { // a deletion of what was not there
				demote(ch)
			}
		},
	})
	if err != nil {
		panic("cache: " + err.Error()) // of the constants above alone
	}
	return &policy{r: r, seed: maphash.MakeSeed()}
}

func (p *policy) hash(ch *chunk) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	h.WriteString(ch.obj.key) // never fails
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ch.idx))
	h.Write(b[:])
	return h.Sum64()
}

// add offers a chunk that was fetched; false means that it was dropped at once.
func (p *policy) add(ch *chunk) bool { return p.r.Set(p.hash(ch), ch, ch.cost) }

// remove tells that ch is gone.
func (p *policy) remove(ch *chunk) { p.r.Del(p.hash(ch)) }

// touch counts a use.
func (p *policy) touch(ch *chunk) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed {
		p.r.Get(p.hash(ch))
	}
}

// close ends ristretto's goroutines. add and remove must not be called any more.
func (p *policy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.r.Close()
}
