package controller

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// loads adds up what brokers have and answers which broker should get the next
// partition of a topic. A choice costs the logarithm of the number of brokers, so
// that hundreds of thousands of partitions are placed in one step.
type loads struct {
	known    Loads
	count    map[int32]int
	bytes    map[int32]float64
	all      int     // sum of count
	allBytes float64 // sum of bytes
	pools    [2]pool // who may get ordinary partitions, internal ones
}

// pool is a set of brokers that may get partitions, sorted by id.
type pool struct {
	brokers []cluster.Broker
	drain   bool // all of them drain: better there than nowhere, but nothing moves there
}

func newLoads(live []cluster.Broker, known Loads) *loads {
	l := &loads{known: known, count: make(map[int32]int, len(live)), bytes: map[int32]float64{}}
	open := slices.DeleteFunc(slices.Clone(live), func(b cluster.Broker) bool { return b.Draining })
	drain := len(open) == 0
	if drain {
		open = live
	}
	reserved := func(b cluster.Broker) bool { return b.HasLabel(cluster.LabelCoordinator) }
	l.pools[0].brokers = slices.DeleteFunc(slices.Clone(open), reserved)
	l.pools[1].brokers = slices.DeleteFunc(slices.Clone(open), func(b cluster.Broker) bool { return !reserved(b) })
	for i := range l.pools {
		if len(l.pools[i].brokers) == 0 {
			l.pools[i].brokers = open
		}
		l.pools[i].drain = drain
	}
	return l
}

func (l *loads) of(id frame.PartitionID) float64 { return l.known[id].total() }

func (l *loads) add(broker int32, id frame.PartitionID)    { l.put(broker, 1, l.of(id)) }
func (l *loads) remove(broker int32, id frame.PartitionID) { l.put(broker, -1, -l.of(id)) }

func (l *loads) put(broker int32, n int, bytes float64) {
	l.count[broker] += n
	l.all += n
	if bytes != 0 {
		l.bytes[broker] += bytes
		l.allBytes += bytes
	}
}

// pool returns who may get partitions of a topic.
func (l *loads) pool(t *cluster.Topic) *pool {
	if t.Internal {
		return &l.pools[1]
	}
	return &l.pools[0]
}

// others reports whether somebody else than a broker may get partitions of a topic.
func (l *loads) others(t *cluster.Topic, broker int32) bool {
	p := l.pool(t)
	return !p.drain && slices.ContainsFunc(p.brokers, func(b cluster.Broker) bool { return b.ID != broker })
}

// ranking orders the brokers that may get partitions of one topic: a heap of racks,
// and in each a heap of brokers, the one that should get the next first.
type ranking struct {
	l     *loads
	racks []*rack
	drain bool
	// perByte is what a byte per second weighs in partitions, so that all bytes weigh
	// as much as all partitions.
	perByte float64
}

type rack struct {
	name   string
	weight float64
	topic  int // partitions of the topic
	items  []ranked
}

type ranked struct {
	id     int32
	weight float64
	topic  int     // partitions of the topic
	load   float64 // all partitions, and bytes in partitions
}

// rank begins the placing of one topic; kept counts its partitions that stay.
func (l *loads) rank(t *cluster.Topic, kept map[int32]int) *ranking {
	p := l.pool(t)
	r := &ranking{l: l, drain: p.drain}
	if l.allBytes > 0 {
		r.perByte = float64(l.all) / l.allBytes
	}
	byName := map[string]*rack{}
	for i := range p.brokers {
		b := &p.brokers[i]
		k := byName[b.Rack]
		if k == nil {
			k = &rack{name: b.Rack}
			byName[b.Rack] = k
			r.racks = append(r.racks, k)
		}
		k.weight += weight(b)
		k.topic += kept[b.ID]
		k.items = append(k.items, ranked{id: b.ID, weight: weight(b), topic: kept[b.ID],
			load: float64(l.count[b.ID]) + l.bytes[b.ID]*r.perByte})
	}
	for _, k := range r.racks {
		heap.Init(k)
	}
	heap.Init(r)
	return r
}

func weight(b *cluster.Broker) float64 {
	if b.Weight > 0 {
		return min(b.Weight, 1e6)
	}
	return 1 // also for NaN
}

// take returns the broker for the next partition and counts it, NoBroker when there
// is none. A preferred one that may have it wins.
func (r *ranking) take(prefer int32, bytes float64) int32 {
	if len(r.racks) == 0 {
		return cluster.NoBroker
	}
	if prefer != cluster.NoBroker {
		for k, rack := range r.racks {
			if i := slices.IndexFunc(rack.items, func(x ranked) bool { return x.id == prefer }); i >= 0 {
				return r.give(k, i, bytes)
			}
		}
	}
	return r.give(0, 0, bytes)
}

// takeIf returns the best broker that ok accepts, NoBroker when there is none that
// does not drain.
func (r *ranking) takeIf(bytes float64, ok func(int32) bool) int32 {
	if len(r.racks) == 0 || r.drain {
		return cluster.NoBroker
	}
	if ok(r.racks[0].items[0].id) {
		return r.give(0, 0, bytes)
	}
	bestRack, best := -1, -1
	for k, rack := range r.racks {
		for i := range rack.items {
			if !ok(rack.items[i].id) {
				continue
			}
			if best < 0 || cmp.Or(compareRacks(rack, r.racks[bestRack]), compareRanked(&rack.items[i], &r.racks[bestRack].items[best])) < 0 {
				bestRack, best = k, i
			}
		}
	}
	if best < 0 {
		return cluster.NoBroker
	}
	return r.give(bestRack, best, bytes)
}

// give counts a partition at a broker and restores the order.
func (r *ranking) give(k, i int, bytes float64) int32 {
	x := &r.racks[k].items[i]
	id := x.id
	x.topic++
	x.load += 1 + bytes*r.perByte
	r.racks[k].topic++
	r.l.put(id, 1, bytes)
	heap.Fix(r.racks[k], i)
	heap.Fix(r, k)
	return id
}

func compareRacks(a, b *rack) int {
	return cmp.Compare(float64(a.topic)/a.weight, float64(b.topic)/b.weight)
}

// compareRanked orders by partitions of the topic, then load, then id.
func compareRanked(a, b *ranked) int {
	return cmp.Or(
		cmp.Compare(float64(a.topic)/a.weight, float64(b.topic)/b.weight),
		cmp.Compare(a.load/a.weight, b.load/b.weight),
		cmp.Compare(a.id, b.id),
	)
}

// Len is for container/heap.
func (r *ranking) Len() int { return len(r.racks) }

// Less orders racks by partitions of the topic, then by the broker that is next there.
func (r *ranking) Less(i, j int) bool {
	a, b := r.racks[i], r.racks[j]
	return cmp.Or(compareRacks(a, b), compareRanked(&a.items[0], &b.items[0])) < 0
}

// Swap is for container/heap.
func (r *ranking) Swap(i, j int) { r.racks[i], r.racks[j] = r.racks[j], r.racks[i] }

// Push is for container/heap; a ranking never grows.
func (r *ranking) Push(any) {}

// Pop is for container/heap; a ranking never shrinks.
func (r *ranking) Pop() any { return nil }

// Len is for container/heap.
func (k *rack) Len() int { return len(k.items) }

// Less orders the brokers of a rack.
func (k *rack) Less(i, j int) bool { return compareRanked(&k.items[i], &k.items[j]) < 0 }

// Swap is for container/heap.
func (k *rack) Swap(i, j int) { k.items[i], k.items[j] = k.items[j], k.items[i] }

// Push is for container/heap; a rack never grows.
func (k *rack) Push(any) {}

// Pop is for container/heap; a rack never shrinks.
func (k *rack) Pop() any { return nil }
