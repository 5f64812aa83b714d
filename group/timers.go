package group

import "container/heap"

type timerKind uint8

const (
	timerExpiry     timerKind = iota // look for offsets that expire
	timerJoin                        // classic: end of the join phase
	timerSync                        // classic: end of the sync phase
	timerSession                     // a member's session
	timerRebalance                   // consumer: time to give partitions up
	timerMemberJoin                  // consumer: a classic member has to rejoin
	timerMemberSync                  // consumer: a classic member has to sync
)

// timerKey names a timer: setting it again moves it.
type timerKey struct {
	kind          timerKind
	group, member string
}

type timer struct {
	at    int64 // instant.mono
	seq   uint64
	index int
	key   timerKey
}

// timers holds what is due when. Timers due at the same time fire in the order they were set.
type timers struct {
	queue timerQueue
	byKey map[timerKey]*timer
	seq   uint64
}

func (t *timers) set(at int64, k timerKey) {
	t.seq++
	if e := t.byKey[k]; e != nil {
		e.at, e.seq = at, t.seq
		heap.Fix(&t.queue, e.index)
		return
	}
	if t.byKey == nil {
		t.byKey = map[timerKey]*timer{}
	}
	e := &timer{at: at, seq: t.seq, key: k}
	t.byKey[k] = e
	heap.Push(&t.queue, e)
}

func (t *timers) has(k timerKey) bool { return t.byKey[k] != nil }

func (t *timers) cancel(k timerKey) {
	if e := t.byKey[k]; e != nil {
		delete(t.byKey, k)
		heap.Remove(&t.queue, e.index)
	}
}

func (t *timers) next() (int64, bool) {
	if len(t.queue) == 0 {
		return 0, false
	}
	return t.queue[0].at, true
}

// pop takes the first timer that is due at now.
func (t *timers) pop(now int64) (timerKey, bool) {
	if len(t.queue) == 0 || t.queue[0].at > now {
		return timerKey{}, false
	}
	e := heap.Pop(&t.queue).(*timer)
	delete(t.byKey, e.key)
	return e.key, true
}

type timerQueue []*timer

func (q timerQueue) Len() int { return len(q) }

func (q timerQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q timerQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *timerQueue) Push(x any) {
	e := x.(*timer)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *timerQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
