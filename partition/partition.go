package partition

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
)

// Partition is one offset space over hot and cold. It starts no goroutine: its Set runs the loops. All methods are
// safe for concurrent use; mu is never held over I/O.
type Partition struct {
	set   *Set
	id    frame.PartitionID
	topic atomic.Pointer[string]
	cfg   atomic.Pointer[cluster.TopicConfig]

	traffic traffic

	// swap is held (as a semaphore, so that waiting has a deadline) by whoever changes the head: roll, DeleteRecords,
	// retention, merge, claim, deletion. Only its holder touches the bucket for this partition's head.
	swap chan struct{}

	mu      sync.Mutex
	state   State
	reason  string
	epoch   int32
	start   int64
	local   int64 // first offset with a local copy
	tiered  int64
	stored  int64 // everything below it is synced and in the index
	durable int64
	next    int64
	ceiling int64
	epochs  []EpochStart
	watches []*watch

	headVersion int64 // of the newest head seen; 0 while there is none
	leaving     bool  // a swap that takes this run's stream out of the head may be on its way; belongs to the holder of swap
	headOwned   bool  // the head names this incarnation and epoch as its owner
	headKnown   bool  // the cached head, or its absence, is the truth
	extents     int
	archived    int64 // bytes in the bucket

	// tail holds the newest entries in offset order: those that the index doesn't have yet, and a few that it has.
	tail     []index.Entry
	settled  int  // leading entries of tail that the index has
	longTail bool // tail is the rest of a longer one

	producersLoaded bool
	live, committed producers

	pending      int64 // durable bytes at or above tiered
	counted      int64 // the tiered offset that pending was last brought in line with (settlePending)
	pendingSince int64
	unlisted     unlisted // uploaded, and still pending
	localBytes   int64
	reopenedAt   int64 // next offset when this run began: localBytes counts from there until countLocal has added the rest
	wantCeiling  int64
	rollForced   bool
	queuedRoll   bool
	retryAt      time.Time // no roll before, after a failed one
	hole         gap       // offsets that recovery found damaged locally
	jump         bool      // records that somebody saw may be lost: the next offset must be the ceiling
	jumpFrom     uint64    // log position from which on a batch says that the jump was made, or that rebooted is settled
	atRisk       bool      // as good as jump to whoever finds it after a crash
	resume       bool      // Recovering only because of a jump: the roll worker makes it and the partition is Writing again
	prepared     bool      // Recovering, and ready for Writing under epoch
	async        bool      // some of its records may have been acknowledged before they were synced
	asyncSaved   bool      // and the index says so on disk
	asyncNext    bool      // its topic becomes async as soon as the index says so
	rebooted     bool      // the machine has restarted since the partition was last ready for writing
	announce     bool      // the next batch needs an epoch-start frame
	void         bool      // which says that offsets before it are void
	startSaved   int64     // start offset that a restart will find in log or index
	noting       int64     // start offset that is being written to the log
	headStart    int64     // of the newest head; above start until that is noted

	metaDirty bool // under set.dirtyMu
	headDirty []byte

	dropped atomic.Bool // its topic was deleted: nothing of it may get into the index any more

	// runMax, maxKnown and usedAt belong to the commit loop.
	usedAt   int // where its entry in Set.touchedFiles is, if it has one
	runMax   int64
	maxKnown bool

	traced bool   // something of it is, or may be, in the local log or index
	move   moving // belongs to the reconcile loop

	object     bool         // acknowledged when the bucket has it (object.go)
	wasObject  bool         // and safe, in the run before, as far as the index says
	bundledAt  int64        // when the last bundle was queued, ms
	staleTo    int64        // where the partition ended when it was prepared
	declassing bool         // ceases to be object as soon as etcd says so
	uploaded   int64        // first offset that this run's stream hasn't acknowledged
	sent       int64        // first offset that isn't in this run's stream, nor under way there; below it nothing is missing that a head lacks
	queuedTo   int64        // first offset that isn't queued for the stream
	safeAt     int64        // the partition is safe once the bucket covers this offset
	inStream   []streamPart // that the head doesn't cover yet
	unneeded   bool         // nobody will ever need parts of it: its topic was deleted, or it was dropped here

	reported   bool       // an unknown topic was reported
	maintained maintained // belongs to the maintenance loop
}

// gap is a range of offsets [from, to); empty when from >= to.
type gap struct{ from, to int64 }

func (g gap) empty() bool { return g.from >= g.to }

// firstCeiling is the offset below which a partition without a head may assign (design, section 9).
const firstCeiling = 1 << 20

func newPartition(s *Set, id frame.PartitionID, topic string) *Partition {
	p := &Partition{set: s, id: id, swap: make(chan struct{}, 1), ceiling: firstCeiling, state: Closed}
	cfg := s.defaultConfig
	p.cfg.Store(&cfg)
	p.setTopic(topic)
	return p
}

// ID returns the topic id and partition number.
func (p *Partition) ID() frame.PartitionID { return p.id }

// Topic returns the topic's name.
func (p *Partition) Topic() string { return *p.topic.Load() }

func (p *Partition) setTopic(name string) { p.topic.Store(&name) }

// Config returns the topic's settings as of now.
func (p *Partition) Config() *cluster.TopicConfig { return p.cfg.Load() }

// serving says whether reads are answered. The caller holds p.mu.
func (p *Partition) serving() bool { return p.state == Writing || p.state == Draining }

// State returns the partition's state on this broker.
func (p *Partition) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Offsets returns a consistent view of the partition's offsets. It works in every state.
func (p *Partition) Offsets() Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offsets()
}

func (p *Partition) offsets() Offsets {
	return Offsets{Start: p.start, LocalStart: max(p.local, p.start), Tiered: p.tiered, Durable: p.durable, End: p.next, Epoch: p.epoch}
}

// CheckEpoch compares a client's leader epoch with the partition's: ErrFencedEpoch, ErrUnknownEpoch, or nil; -1
// matches everything. ErrNotOwner when the partition isn't served here.
func (p *Partition) CheckEpoch(epoch int32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admit(epoch)
}

// admit checks that reads are served under the given epoch. The caller holds p.mu.
func (p *Partition) admit(epoch int32) error {
	if !p.serving() {
		return fmt.Errorf("%w: %s-%d is %s", ErrNotOwner, p.Topic(), p.id.Partition, p.state)
	}
	if epoch >= 0 && epoch < p.epoch {
		return ErrFencedEpoch
	}
	if epoch > p.epoch {
		return ErrUnknownEpoch
	}
	return nil
}

// Locate says where a read at offset would be served from, without reading anything.
func (p *Partition) Locate(offset int64) Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case offset < p.start || offset > p.durable:
		return OutOfRange
	case offset == p.durable:
		return Tail
	case offset < p.local:
		return Cold
	}
	return Hot
}

// EpochEnd answers OffsetForLeaderEpoch (KIP-101, KIP-279): the largest epoch at or below the given one that has
// records, and the offset where it ends; (-1, -1) when there is none. The newest epoch ends at the durable offset.
func (p *Partition) EpochEnd(epoch int32) (int32, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch == p.epoch {
		return epoch, p.durable
	}
	if epoch > p.epoch {
		return -1, -1
	}
	for i := len(p.epochs) - 1; i >= 0; i-- {
		if p.epochs[i].Epoch > epoch {
			continue
		}
		if i+1 < len(p.epochs) {
			return p.epochs[i].Epoch, p.epochs[i+1].Start
		}
		return p.epochs[i].Epoch, p.durable
	}
	// Older than everything known: Kafka answers with the epoch asked for and the start of the first known one.
	if len(p.epochs) > 0 {
		return epoch, p.epochs[0].Start
	}
	return -1, -1
}

// epochAt returns the leader epoch of the record at offset. The caller holds p.mu.
func (p *Partition) epochAt(offset int64) int32 {
	for i := len(p.epochs) - 1; i >= 0; i-- {
		if p.epochs[i].Start <= offset {
			return p.epochs[i].Epoch
		}
	}
	return -1
}

// EpochAt returns the leader epoch of the record at offset, -1 when it isn't known.
func (p *Partition) EpochAt(offset int64) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epochAt(offset)
}

// Producers lists the idempotent producers that the partition remembers.
func (p *Partition) Producers() ([]ProducerInfo, error) {
	if err := p.loadProducers(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]ProducerInfo, 0, len(p.live))
	for id, s := range p.live {
		i := ProducerInfo{ID: id, Epoch: s.epoch, LastSequence: -1, LastSeen: s.seen}
		if b := s.newest(); b != nil {
			i.LastSequence = b.lastSeq
		}
		list = append(list, i)
	}
	return list, nil
}

// Stats describes the partition.
func (p *Partition) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		ID: p.id, Topic: p.Topic(), State: p.state, Reason: p.reason, Offsets: p.offsets(), HeadVersion: p.headVersion,
		PendingBytes: p.pending, PendingSince: p.pendingSince, LocalBytes: p.localBytes, Extents: p.extents, ArchiveBytes: p.archived,
	}
}

// fail moves the partition to Failed with a reason that an operator can act on.
func (p *Partition) fail(reason string, err error) {
	p.mu.Lock()
	if p.state == Closed {
		p.mu.Unlock()
		return // it isn't ours any more
	}
	p.state, p.reason, p.resume = Failed, reason, false
	if err != nil {
		p.reason += ": " + err.Error()
	}
	p.wake()
	p.mu.Unlock()
	p.set.event(Error, p, "partition failed: "+reason, err)
	p.set.kickReconcile()
}
