package controller

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
)

// loads counts partitions by broker and answers which broker should get the next
// one of a topic. A choice costs the logarithm of the number of brokers, so that
// hundreds of thousands of partitions are placed in one step.
type loads struct {
	total map[int32]int
	pools [2][]cluster.Broker // who may get ordinary partitions, internal ones
}

func newLoads(live []cluster.Broker) *loads {
	l := &loads{total: make(map[int32]int, len(live))}
	open := slices.DeleteFunc(slices.Clone(live), func(b cluster.Broker) bool { return b.Draining })
	if len(open) == 0 {
		open = live // all drain: better there than nowhere
	}
	reserved := func(b cluster.Broker) bool { return b.HasLabel(cluster.LabelCoordinator) }
	l.pools[0] = slices.DeleteFunc(slices.Clone(open), reserved)
	l.pools[1] = slices.DeleteFunc(slices.Clone(open), func(b cluster.Broker) bool { return !reserved(b) })
	for i := range l.pools {
		if len(l.pools[i]) == 0 {
			l.pools[i] = open
		}
	}
	return l
}

// ranking is a heap of the brokers that may get partitions of one topic, the one
// that should get the next first.
type ranking struct {
	l     *loads
	items []ranked
}

type ranked struct {
	id     int32
	weight float64
	topic  int // partitions of the topic
	total  int
}

// rank begins the placing of one topic; kept counts its partitions that stay.
func (l *loads) rank(t *cluster.Topic, kept map[int32]int) *ranking {
	pool := l.pools[0]
	if t.Internal {
		pool = l.pools[1]
	}
	r := &ranking{l: l, items: make([]ranked, len(pool))}
	for i := range pool {
		b := &pool[i]
		r.items[i] = ranked{id: b.ID, weight: weight(b), topic: kept[b.ID], total: l.total[b.ID]}
	}
	heap.Init(r)
	return r
}

func weight(b *cluster.Broker) float64 {
	if b.Weight > 0 {
		return b.Weight
	}
	return 1 // also for NaN
}

// take returns the broker for the next partition and counts it, NoBroker when
// there is none. A target that may have it wins.
func (r *ranking) take(target int32) int32 {
	if len(r.items) == 0 {
		return cluster.NoBroker
	}
	i := 0
	if target != cluster.NoBroker {
		i = max(0, slices.IndexFunc(r.items, func(x ranked) bool { return x.id == target }))
	}
	id := r.items[i].id
	r.items[i].topic++
	r.items[i].total++
	r.l.total[id]++
	heap.Fix(r, i)
	return id
}

// Len is for container/heap.
func (r *ranking) Len() int { return len(r.items) }

// Less orders by partitions of the topic, then all partitions, then id.
func (r *ranking) Less(i, j int) bool {
	a, b := &r.items[i], &r.items[j]
	return cmp.Or(
		cmp.Compare(float64(a.topic)/a.weight, float64(b.topic)/b.weight),
		cmp.Compare(float64(a.total)/a.weight, float64(b.total)/b.weight),
		cmp.Compare(a.id, b.id),
	) < 0
}

// Swap is for container/heap.
func (r *ranking) Swap(i, j int) { r.items[i], r.items[j] = r.items[j], r.items[i] }

// Push is for container/heap; a ranking never grows.
func (r *ranking) Push(any) {}

// Pop is for container/heap; a ranking never shrinks.
func (r *ranking) Pop() any { return nil }
