package broker

import (
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// fetchPart is a partition in a fetch; in a session it lives as long as the client fetches the partition.
type fetchPart struct {
	key fetchKey

	// What the client asked for.
	offset    int64
	maxBytes  int32
	epoch     int32 // leader epoch it believes in, -1 unknown
	lastEpoch int32 // epoch of the last record it has, -1 unknown

	// What the session remembers.
	sentHigh, sentStart int64 // as last sent, -1 for never
	token               int32
	ready, gone         bool
	watched             Partition // where the waiter is registered

	fetchAnswer
}

// fetchAnswer is what the fetch under way has found out about a partition.
type fetchAnswer struct {
	topic     *cluster.Topic
	p         Partition
	high      int64
	start     int64
	records   int // bytes read
	batches   partition.Batches
	cold      *coldRead
	grant     int  // bytes of the budget that the cold read holds
	cut       bool // the cold read takes less than there was room for
	leader    *kafka.Leader
	diverging *kafka.EpochEnd
	err       int16
	listed    bool            // the partition is in the fetch's list
	place     partition.Place // Tail unless the partition can be read
	starved   bool            // has more to send than the budget or the cold workers had room for
}

func (p *fetchPart) ask(in *kafka.FetchRequestPartition) {
	p.offset, p.maxBytes, p.epoch, p.lastEpoch = in.Offset, in.MaxBytes, in.CurrentLeaderEpoch, in.LastFetchedEpoch
}

// watch registers the waiter with p and takes it off where it was before; nil only takes it off.
func (fp *fetchPart) watch(p Partition, w *partition.Waiter) {
	if fp.watched == p {
		return
	}
	if fp.watched != nil {
		fp.watched.Unwatch(w)
	}
	fp.watched = p
	if p != nil {
		// The caller looks at the offsets after this, so nothing needs to be reported that is already there.
		p.Watch(w, fp.token, noOffset)
	}
}

// noOffset is an offset that no partition has passed.
const noOffset = 1<<63 - 1

// fetchCall is one Fetch request, reused.
type fetchCall struct {
	b       *Broker
	c       call
	req     kafka.FetchRequest
	resp    kafka.FetchResponse
	started time.Time
	wait    time.Duration // max_wait
	byID    bool

	s           *fetchSession // nil without one
	incremental bool
	own         []fetchPart  // parts of a fetch without a session
	list        []*fetchPart // what is looked at, in the order of the answer
	waiter      *partition.Waiter
	tokens      []int32
	wakeCold    chan struct{}
	hints       hints

	maxBytes, minBytes int
	bytes, left        int  // read so far; budget not yet read nor granted
	coldLeft           int  // the part of left that cold reads may have
	coldOut            bool // some cold partition got none of it
	pending            int  // cold reads under way
	urgent             bool // something can't wait: an error, or a diverging epoch
	granted            bool // somebody may already send the batch that passes max_bytes
	enoughAt           time.Time

	held    []partition.Batches // to be released with the response
	wide    func()              // gives back the part of a request of very many partitions in their budget; nil: it has none
	release func()
}

func newFetchCall() any {
	f := &fetchCall{wakeCold: make(chan struct{}, 1)}
	f.release = f.free
	return f
}

// keptParts is how many partitions a fetch may have had whose state is kept; sessions grow beyond their requests.
const keptParts = 16384

// free releases what the response held and keeps the state for the next request.
func (f *fetchCall) free() {
	for i := range f.held {
		f.held[i].Release()
	}
	if f.wide != nil {
		f.wide() // and everything to the garbage collector
		*f = fetchCall{}
		return
	}
	clear(f.held)
	clear(f.own)
	clear(f.list)
	for i := range f.resp.Topics {
		clear(f.resp.Topics[i].Partitions)
	}
	select {
	case <-f.wakeCold:
	default:
	}
	pool := &f.b.fetchCalls
	big := cap(f.own) > keptParts || cap(f.list) > keptParts || cap(f.held) > keptParts
	*f = fetchCall{req: f.req, resp: kafka.FetchResponse{Topics: f.resp.Topics[:0]}, own: f.own[:0], list: f.list[:0], tokens: f.tokens[:0],
		wakeCold: f.wakeCold, held: f.held[:0], release: f.release, hints: hints{endpoints: f.hints.endpoints[:0]}}
	if !big {
		pool.Put(f)
	}
}

// fetch answers Fetch, versions 4 to 18. The work is done in Wait: a long poll belongs there.
func (b *Broker) fetch(ctx context.Context, c *call) kafka.Pending {
	f := b.fetchCalls.Get().(*fetchCall)
	f.b, f.c = b, *c
	if err := kafka.DecodeFetch(c.Version, c.Body, &f.req); err != nil {
		return hangUp(err) // what a malformed request has made of f is not kept
	}
	var err error
	if f.wide, err = b.admitElements(ctx, c, fetchElements(&f.req)); err != nil {
		return hangUp(err)
	}
	f.byID = c.Version >= 13
	return f
}

// Wait reads what there is, waits for more if the client wants that, and answers.
func (f *fetchCall) Wait(ctx context.Context) kafka.Response {
	f.started = f.b.o.Now()
	f.hints.img, f.hints.listener = f.b.o.Cluster.Image(), f.c.listener()
	f.maxBytes = int(min(max(f.req.MaxBytes, 0), f.b.o.FetchMaxBytes))
	f.minBytes = min(int(max(f.req.MinBytes, 0)), f.maxBytes)
	f.left = f.maxBytes
	if err := f.openSession(ctx); err != nil {
		f.resp.Error = f.b.failed(&f.c, err.Code)
	} else {
		f.work(ctx)
	}
	return kafka.Response{Bufs: net.Buffers(kafka.EncodeFetchResponse(f.c.Version, &f.resp)), Release: f.release}
}

// work reads and builds the answer. The session is closed even if a read panics on a broken mapping, which package
// kafka turns into a closed connection.
func (f *fetchCall) work(ctx context.Context) {
	defer f.closeSession()
	f.run(ctx)
	f.answer()
}

func (f *fetchCall) key(name string, id [16]byte, index int32) fetchKey {
	if f.byID {
		return fetchKey{topic: id, index: index}
	}
	return fetchKey{name: name, index: index}
}

// each calls fn for every partition of the request.
func (f *fetchCall) each(fn func(fetchKey, *kafka.FetchRequestPartition)) {
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			fn(f.key(t.Name, t.ID, t.Partitions[j].Index), &t.Partitions[j])
		}
	}
}

// listAll lists the partitions of a request without a session.
func (f *fetchCall) listAll() {
	n := 0
	for i := range f.req.Topics {
		n += len(f.req.Topics[i].Partitions)
	}
	f.own = resize(f.own[:0], n)
	f.list = f.list[:0]
	f.each(func(k fetchKey, in *kafka.FetchRequestPartition) {
		i := len(f.list)
		f.own[i] = fetchPart{key: k, sentHigh: -1, sentStart: -1, token: int32(i)}
		f.own[i].ask(in)
		f.list = append(f.list, &f.own[i])
	})
}

// answer builds the response. Without a session and for a new one it has every partition, in an incremental one those
// with something to tell.
func (f *fetchCall) answer() {
	r := &f.resp
	r.Topics = r.Topics[:0]
	if f.s != nil {
		r.SessionID = f.s.id
	}
	for _, p := range f.list {
		if f.incremental && !p.tells() {
			continue
		}
		f.add(p)
		p.sentHigh, p.sentStart = p.high, p.start
	}
	if f.c.Version >= 16 {
		r.NodeEndpoints = f.hints.endpoints
	}
}

// tells says whether a partition has something that the client doesn't know.
func (p *fetchPart) tells() bool {
	return p.records > 0 || p.err != 0 || p.diverging != nil || p.high != p.sentHigh || p.start != p.sentStart
}

var noAborted = []kafka.AbortedTransaction{}

func (f *fetchCall) add(p *fetchPart) {
	n := len(f.resp.Topics)
	if n == 0 || f.resp.Topics[n-1].Name != p.key.name || f.resp.Topics[n-1].ID != p.key.topic {
		f.resp.Topics = resize(f.resp.Topics, n+1)
		t := &f.resp.Topics[n]
		t.Name, t.ID, t.Partitions = p.key.name, p.key.topic, t.Partitions[:0]
		n++
	}
	out := kafka.FetchPartition{
		Index: p.key.index, Error: p.err, HighWatermark: p.high, LastStableOffset: p.high, LogStartOffset: p.start,
		PreferredReadReplica: -1, Records: p.batches.Slices, DivergingEpoch: p.diverging, CurrentLeader: p.leader,
	}
	if f.req.IsolationLevel == 1 {
		out.AbortedTransactions = noAborted
	}
	t := &f.resp.Topics[n-1]
	t.Partitions = append(t.Partitions, out)
	if p.records > 0 {
		cold := 0
		if p.place == partition.Cold {
			cold = p.records
		}
		f.b.metrics.Fetched(p.topic.Name, p.topic.ID, p.records, cold)
		f.held = append(f.held, p.batches)
		p.batches = partition.Batches{}
	}
}

// refuse puts an error into a partition's answer. Only the codes that consumers handle in a fetch are used: the Java
// client takes any other for a bug and stops.
func (f *fetchCall) refuse(p *fetchPart, err error) {
	k := code(err)
	switch k {
	case kerr.OffsetOutOfRange.Code, kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code,
		kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.KafkaStorageError.Code:
	case kerr.UnknownServerError.Code:
		k = f.b.fail(&f.c, p.key.name, err)
	default:
		k = kerr.KafkaStorageError.Code
	}
	if k != kerr.UnknownServerError.Code {
		f.b.metrics.Failed(f.c.Key, k)
	}
	p.err, p.high, p.start = k, -1, -1
	f.urgent = true
	if f.c.Version >= 12 && misdirected(k) && p.topic != nil {
		p.leader = f.hints.leader(f.b, frame.PartitionID{Topic: p.topic.ID, Partition: p.key.index})
	}
}
