package partition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// Set is all of a broker's partitions over one commit log, one index and one bucket. It owns every goroutine of the
// package: the commit loop, the reconciler, the roll workers and the maintenance loop; Close stops them.
type Set struct {
	o             SetOptions
	log           *segment.Log
	index         *index.Store
	progress      *progress
	defaultConfig cluster.TopicConfig
	recovered     Recovery
	heads         *headCache

	partsMu sync.RWMutex
	parts   map[frame.PartitionID]*Partition

	backlog  atomic.Int64 // appends that the commit loop has not settled
	async    atomic.Bool  // a topic with durability async was written
	asyncNow chan struct{}
	appendMu sync.Mutex // makes enqueue into the log and into queue one step
	queue    []queued
	scratch  segment.Entry
	lastEnd  uint64 // log position behind the newest append of this run, and its generation
	lastGen  uint64
	gate     bool // nothing may be appended: a failure is being dealt with

	// The commit loop's own.
	generation             uint64              // of the log: failures up to it have been dealt with
	jumping                bool                // partitions must jump, and the index does not say so on disk
	risk                   map[*Partition]bool // may lose what consumers have seen while the log is opened again
	endBefore              uint64              // end of the log before the latest failure
	reopening              bool                // the log could not be opened again at the first attempt
	reopenDue              <-chan time.Time    // the next attempt
	inflight               []queued
	exposedN               int
	exposedTo, committedTo uint64
	fileBase, fileEnd      uint64
	batch                  *index.Batch // reused
	touchedProducers       []touchedProducer
	touchedFiles           []touchedFile
	extra                  checkpointExtra // and how it is encoded
	extraBytes             []byte
	active                 uint64 // first position of the file that the log began when it was opened, 0 when there was no room for one
	encodeBuf              []byte
	execs                  chan exec

	dirtyMu     sync.Mutex
	dirty       []*Partition
	dirtySignal chan struct{}

	pressure pressure
	rolls    *rollQueue
	jobs     *jobs
	stream   *stream // nil: no object partitions
	seals    *seals
	// The maintenance loop's own: when streams that ended were last swept, and those whose runs were away at that look.
	streamsSwept int64
	dying        map[wal.StreamID]map[uint64]int64 // objects of ended streams that nobody needs, by number, and since when (ms)
	images       chan struct{}                     // a newer image is there
	later        bool                              // the reconcile loop's own: look again soon
	hurry        atomic.Pointer[time.Time]         // from when on moves from here no longer wait for their targets; nil: never
	warming      map[frame.PartitionID]bool
	image        atomic.Pointer[cluster.Image]
	reclaims     chan struct{}
	reclaiming   chan struct{} // held by whoever drops files

	ctx          context.Context // of everything that may be cut short at Close
	cancel       context.CancelFunc
	commitCtx    context.Context // of the commit loop, which ends last
	commitCancel context.CancelFunc
	commitDone   chan struct{}
	work         sync.WaitGroup
	cut          bool // the log was found to end before what the index says: records that clients saw are gone
	closing      atomic.Bool
	fatal        atomic.Pointer[error]
	empty, lossy atomic.Bool // see settleDoubt
}

// Recovery says what opening the local data found.
type Recovery struct {
	Frames     int
	From, To   uint64 // log positions scanned
	Torn       int64
	Corrupt    []segment.Corruption
	Rebuilt    bool // the index was missing or unreadable and was built anew from the log
	Rebooted   bool // the machine has restarted since the log was last open, without a clean close
	Partitions int
}

// OpenSet opens the local log and index, replays what the index lacks, and starts the loops. No partition serves
// anything until Apply hands it an assignment. Errors concern the local disk: the bucket isn't asked.
func OpenSet(o SetOptions) (*Set, error) {
	o.setDefaults()
	if o.Log.Dir == "" {
		o.Log.Dir = filepath.Join(o.Dir, "log")
	}
	if o.Index.Dir == "" {
		o.Index.Dir = filepath.Join(o.Dir, "index")
	}
	cfg, err := cluster.ParseTopicConfig(nil, nil)
	if err != nil {
		return nil, err
	}
	s := &Set{
		o: o, defaultConfig: cfg, parts: map[frame.PartitionID]*Partition{},
		execs: make(chan exec), dirtySignal: make(chan struct{}, 1), asyncNow: make(chan struct{}, 1), images: make(chan struct{}, 1),
		reclaims: make(chan struct{}, 1), reclaiming: make(chan struct{}, 1), commitDone: make(chan struct{}), heads: newHeadCache(headCacheEntries),
		rolls: newRollQueue(), jobs: newJobs(), seals: newSeals(), dying: map[wal.StreamID]map[uint64]int64{}, warming: map[frame.PartitionID]bool{},
	}
	s.pressure.budget.Store(o.DiskBudget)
	if o.WAL != nil {
		s.stream = newStream(s, *o.WAL)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.commitCtx, s.commitCancel = context.WithCancel(context.Background())
	if err := s.openIndex(); err != nil {
		return nil, err
	}
	err = s.recover()
	if errors.Is(err, index.ErrCorrupt) || errors.Is(err, ErrCorrupt) {
		// It could be opened, but what it says makes no sense.
		if err := s.replaceIndex(errors.Join(err, s.index.Close())); err != nil {
			return nil, err
		}
		s.parts = map[frame.PartitionID]*Partition{}
		s.takeDirty()
		err = s.recover()
	}
	if err != nil {
		return nil, errors.Join(err, s.index.Close())
	}
	s.start()
	return s, nil
}

// openIndex opens the index, and an empty one in its place when it can't be read: everything in it comes from the
// log and the bucket.
func (s *Set) openIndex() error {
	var err error
	s.index, err = index.Open(s.o.Index)
	if !errors.Is(err, index.ErrCorrupt) {
		return err
	}
	return s.replaceIndex(err)
}

// replaceIndex puts an empty index in the place of one that is closed and can't be used.
func (s *Set) replaceIndex(err error) error {
	s.event(Warn, nil, "the index is unreadable and is built anew from the commit log and the bucket", err)
	if s.o.Index.FS != nil {
		err = s.o.Index.FS.RemoveAll(s.o.Index.Dir)
	} else {
		err = os.RemoveAll(s.o.Index.Dir)
	}
	if err != nil {
		return fmt.Errorf("remove unreadable index: %w", err)
	}
	s.index, err = index.Open(s.o.Index)
	return err
}

func (s *Set) start() {
	go s.commitLoop()
	loops := []func(){s.reconcileLoop, s.rollLoop, s.maintainLoop, s.reclaimLoop}
	for range s.o.RollWorkers {
		loops = append(loops, s.rollWorker)
	}
	if s.stream != nil {
		loops = append(loops, s.stream.loop, s.stream.follow)
	}
	for _, f := range loops {
		s.work.Go(f)
	}
}

// Recovered tells what OpenSet found.
func (s *Set) Recovered() Recovery { return s.recovered }

// Log gives tools and metrics a view of the commit log.
func (s *Set) Log() *segment.Log { return s.log }

// Index gives tools and metrics a view of the index.
func (s *Set) Index() *index.Store { return s.index }

// Get returns a partition that this broker has or had, nil otherwise.
func (s *Set) Get(id frame.PartitionID) *Partition {
	s.partsMu.RLock()
	defer s.partsMu.RUnlock()
	return s.parts[id]
}

// All returns every partition this broker has or had, in no order.
func (s *Set) All() []*Partition {
	s.partsMu.RLock()
	defer s.partsMu.RUnlock()
	ps := make([]*Partition, 0, len(s.parts))
	for _, p := range s.parts {
		ps = append(ps, p)
	}
	return ps
}

// ensure returns the partition, made now if it isn't known.
func (s *Set) ensure(id frame.PartitionID, topic string) *Partition {
	s.partsMu.Lock()
	defer s.partsMu.Unlock()
	p := s.parts[id]
	if p == nil {
		p = newPartition(s, id, topic)
		s.parts[id] = p
	}
	return p
}

func (s *Set) forget(p *Partition) {
	s.partsMu.Lock()
	if s.parts[p.id] == p {
		delete(s.parts, p.id)
	}
	s.partsMu.Unlock()
	s.heads.drop(p.id)
	s.jobs.forget(p)
	s.o.Archive.Forget(p.id)
}

func (s *Set) event(l Level, p *Partition, msg string, err error) {
	e := Event{Level: l, Message: msg, Err: err}
	if p != nil {
		e.Topic, e.Partition = p.Topic(), p.id
	}
	s.o.OnEvent(e)
}

// Err returns the error that made the whole set unusable, nil while it works: the daemon ends on it.
func (s *Set) Err() error {
	if e := s.fatal.Load(); e != nil {
		return *e
	}
	return nil
}

// stopIndexing is the end of this run: without the index nothing can become durable. A restart rebuilds it.
func (s *Set) stopIndexing(err error) {
	if s.fatal.Load() != nil {
		return
	}
	err = fmt.Errorf("%w: index: %w", ErrStorage, err)
	s.fatal.Store(&err)
	s.event(Error, nil, "the index can't be written; restart the broker, which rebuilds it if need be", err)
	s.progress.end(err)
}

// Close refuses new appends, finishes what was accepted, saves a checkpoint and closes log and index. It takes as
// long as one fdatasync and one index flush; uploads under way are given up (their objects are swept later).
func (s *Set) Close(ctx context.Context) error {
	if !s.closing.CompareAndSwap(false, true) {
		return ErrClosing
	}
	for _, p := range s.All() {
		p.mu.Lock()
		if p.state != Failed {
			p.state = Closed
		}
		p.wake()
		p.mu.Unlock()
	}
	s.cancel()
	// Also while others end: one of them may wait for room in the stream, for as long as the bucket doesn't answer.
	ended := make(chan error, 1)
	go func() { ended <- s.closeStream(ctx) }()
	s.work.Wait()
	err := errors.Join(<-ended, s.closeStream(ctx)) // again: the stream may have been opened meanwhile
	err = errors.Join(err, s.log.Sync(ctx))
	if err == nil {
		err = s.settleAll(ctx)
	}
	s.commitCancel()
	<-s.commitDone
	if err == nil && s.fatal.Load() == nil {
		err = s.lastBatch()
	}
	s.progress.end(ErrClosing)
	return errors.Join(err, s.index.Close(), s.log.Close())
}

func (s *Set) closeStream(ctx context.Context) error {
	if s.stream == nil {
		return nil
	}
	return s.stream.close(ctx)
}

// lastBatch saves what is dirty and that the log was closed. The commit loop has ended.
func (s *Set) lastBatch() error {
	b := s.index.NewBatch()
	s.addDirty(b)
	b.SetCheckpoint(s.committedTo, s.checkpointExtra(true))
	return errors.Join(b.Commit(), b.Close())
}

// settleAll waits until the commit loop has indexed everything that was appended.
func (s *Set) settleAll(ctx context.Context) error {
	s.appendMu.Lock()
	a := Ack{set: s, end: s.lastEnd, gen: s.lastGen}
	s.appendMu.Unlock()
	return a.Durable(ctx)
}

// lastCommit indexes what is synced when the loop is told to end.
func (s *Set) lastCommit() {
	wm := s.log.Watermarks()
	if wm.Err == nil && wm.Generation == s.generation {
		s.step(wm)
	}
}
