package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// job is one partition on its way into Writing, or out of the cluster. It waits for the bucket where it must, so that
// one whose head can't be had keeps nobody else waiting.
type job struct {
	start
	kind jobKind
	to   *cluster.Broker // of a hand-over: the run of the broker that gets the partition
}

// jobKind says what a job does.
type jobKind uint8

const (
	jobPrepare   jobKind = iota // into Writing
	jobDelete                   // its topic is being deleted
	jobHandOver                 // to another broker
	jobStay                     // that came to nothing: back to Writing
	jobLeave                    // another broker has it: drop what is left here
	jobRollAhead                // roll a large tail before it is moved; the cluster isn't told
	jobReclass                  // follow a change of the topic's durability to or from object
)

// jobs runs them on goroutines that exist only while there is something to do: one lane for those that need nothing but
// the local disk, one for those that ask the bucket.
type jobs struct {
	mu     sync.Mutex
	lanes  [2]lane
	busy   map[*Partition]bool
	rests  map[*Partition]rest // failed, and not tried again before
	done   []job               // for the reconcile loop to tell the cluster
	errs   []error             // since the last look
	failed int
}

type lane struct {
	queue   []job
	running int
}

type rest struct {
	kind  jobKind // that failed last
	tries int
	until time.Time
}

// maxRestDoublings bounds the pause after a failed job, which doubles with each failure of the same partition in a row.
const maxRestDoublings = 5

func newJobs() *jobs {
	return &jobs{busy: map[*Partition]bool{}, rests: map[*Partition]rest{}}
}

// offer starts a job unless one of the partition is under way, has just ended, or failed a moment ago.
func (s *Set) offer(j job) {
	n := 1
	if j.kind == jobPrepare && j.p.quick(j.a.Epoch) {
		n = 0
	}
	q := s.jobs
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rests[j.p]
	if q.busy[j.p] || time.Now().Before(r.until) && (j.kind != jobStay || r.kind == jobStay) {
		return
	}
	q.busy[j.p] = true
	switch j.kind {
	case jobDelete:
		j.p.retire()
	case jobPrepare:
		j.p.begin()
	case jobHandOver, jobStay, jobLeave, jobRollAhead, jobReclass:
	}
	l := &q.lanes[n]
	l.queue = append(l.queue, j)
	if l.running < s.o.OpenWorkers {
		l.running++
		s.work.Go(func() { s.runLane(l) })
	}
}

func (s *Set) runLane(l *lane) {
	q := s.jobs
	for {
		q.mu.Lock()
		if len(l.queue) == 0 || s.ctx.Err() != nil {
			l.running--
			q.mu.Unlock()
			return
		}
		j := l.queue[0]
		l.queue[0] = job{}
		l.queue = l.queue[1:]
		q.mu.Unlock()
		err := s.runJob(&j)
		q.finish(j, err, s.o.RetryPause)
		s.kickReconcile()
	}
}

func (s *Set) runJob(j *job) error {
	limit := s.o.BucketCallTimeout
	if j.kind == jobHandOver {
		limit = min(limit, s.o.DrainPatience) // nobody can write meanwhile
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	switch j.kind {
	case jobPrepare:
		return j.p.prepare(ctx, j.a)
	case jobHandOver:
		return j.p.handOver(ctx)
	case jobStay:
		return j.p.stay(ctx)
	case jobLeave:
		return j.p.leave(ctx)
	case jobRollAhead:
		return j.p.rollAhead(ctx)
	case jobReclass:
		return j.p.reclass(ctx)
	case jobDelete:
	}
	if err := j.p.delete(ctx, j.a.Epoch); err != nil {
		return fmt.Errorf("delete %s-%d: %w", j.p.Topic(), j.p.id.Partition, err)
	}
	return nil
}

func (q *jobs) finish(j job, err error, pause time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		delete(q.rests, j.p)
		if j.kind == jobRollAhead {
			delete(q.busy, j.p)
			return
		}
		q.done = append(q.done, j) // busy until the cluster knows
		return
	}
	delete(q.busy, j.p)
	if errors.Is(err, errLeft) {
		delete(q.rests, j.p)
		return
	}
	r := q.rests[j.p]
	r.until = time.Now().Add(pause << min(r.tries, maxRestDoublings))
	r.tries++
	r.kind = j.kind
	q.rests[j.p] = r
	if errors.Is(err, errNotYet) {
		return // the image that changes this wakes the loop
	}
	q.failed++
	if len(q.errs) < 3 { // one bucket outage is one line, not ten thousand
		q.errs = append(q.errs, err)
	}
}

// take returns the jobs that are done, whether some have failed since the last look, and why.
func (q *jobs) take() (done []job, failed bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	done, q.done = q.done, nil
	failed, err = q.failed > 0, errors.Join(q.errs...)
	q.failed, q.errs = 0, nil
	return done, failed, err
}

// resting says whether a job has failed and not yet been done.
func (q *jobs) resting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.rests) > 0
}

// release lets the partitions of jobs be taken up again. Those that the cluster could not be told of are kept.
func (q *jobs) release(js []job, keep bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if keep {
		q.done = append(q.done, js...)
		return
	}
	for i := range js {
		delete(q.busy, js[i].p)
	}
}

// forget drops what is remembered of partitions that are gone.
func (q *jobs) forget(p *Partition) {
	q.mu.Lock()
	delete(q.rests, p)
	q.mu.Unlock()
}

// forgetOthers is forget for all partitions but those of this broker.
func (q *jobs) forgetOthers(mine map[frame.PartitionID]bool) {
	q.mu.Lock()
	for p := range q.rests {
		if !mine[p.id] {
			delete(q.rests, p)
		}
	}
	q.mu.Unlock()
}

// tellDone tells the cluster of the jobs that are done and lets the partitions serve.
func (s *Set) tellDone(done []job) error {
	if done = s.handedOver(done); len(done) == 0 {
		return nil
	}
	if err := s.secureDeleted(done); err != nil {
		s.jobs.release(done, true)
		return err
	}
	moves := make([]cluster.Transition, 0, len(done))
	for i := range done {
		moves = append(moves, s.move(&done[i]))
	}
	err := s.o.Cluster.Transition(s.ctx, moves)
	var fenced *cluster.FencedError
	if err != nil && !errors.As(err, &fenced) {
		s.jobs.release(done, true)
		return err
	}
	lost := map[frame.PartitionID]bool{}
	if fenced != nil {
		for _, id := range fenced.Lost { // they follow the next image
			lost[id] = true
		}
	}
	for i := range done {
		if j := &done[i]; !lost[j.p.id] {
			s.concluded(j, moves[i].To)
		}
	}
	s.jobs.release(done, false)
	return nil
}

// concluded follows a transition that the cluster has made.
func (s *Set) concluded(j *job, to cluster.State) {
	switch j.kind {
	case jobDelete:
		s.forget(j.p)
	case jobPrepare:
		j.p.enter(j.a.Epoch)
	case jobHandOver, jobStay:
		if to == cluster.Writing {
			j.p.undrain(j.a.Epoch)
			s.event(Warn, j.p, "the move was given up; the partition takes writes here again", nil)
			return
		}
		j.p.close()
	case jobReclass:
		j.p.reclassed()
	case jobLeave, jobRollAhead:
	}
}

func (s *Set) move(j *job) cluster.Transition {
	switch j.kind {
	case jobDelete:
		return s.transition(j.start, cluster.Deleted, "")
	case jobHandOver:
		return s.handOverTo(j)
	case jobStay:
		t := s.transition(j.start, cluster.Writing, "")
		t.From = cluster.Draining
		return t
	case jobReclass:
		t := s.transition(j.start, cluster.Writing, "")
		t.Safe = j.p.safety()
		return t
	case jobPrepare, jobLeave, jobRollAhead:
	}
	st := j.start
	st.a.State = cluster.Recovering
	if reason, failed := j.p.failure(); failed {
		return s.transition(st, cluster.Failed, reason)
	}
	t := s.transition(st, cluster.Writing, "")
	t.Safe = j.p.safety()
	return t
}

// secureDeleted makes sure that deleted partitions stay deleted when the machine loses its power.
func (s *Set) secureDeleted(done []job) error {
	for i := range done {
		if done[i].kind == jobDelete {
			return errors.Join(s.log.Sync(s.ctx), s.index.Flush())
		}
	}
	return nil
}

// begin takes the partition into Recovering.
func (p *Partition) begin() {
	p.mu.Lock()
	p.state, p.reason, p.prepared, p.resume = Recovering, "", false, false
	p.wake()
	p.mu.Unlock()
}

// retire ends writing to a partition whose topic is being deleted; what was served is read until its head is buried.
func (p *Partition) retire() {
	p.mu.Lock()
	if p.serving() {
		p.state = Draining
	} else {
		p.state = Closed
	}
	p.resume = false
	p.wake()
	p.mu.Unlock()
}

// enter takes a partition that is prepared under the epoch into Writing.
func (p *Partition) enter(epoch int32) {
	p.mu.Lock()
	if p.state == Recovering && p.prepared && p.epoch == epoch && !p.set.closing.Load() {
		p.state, p.prepared = Writing, false
		p.wake()
	}
	p.mu.Unlock()
}

// close ends the serving of a partition that was handed over.
func (p *Partition) close() {
	p.mu.Lock()
	if p.state != Failed {
		p.state = Closed
	}
	p.move, p.resume, p.object = moving{}, false, false
	p.releaseParts(math.MaxInt64)
	p.wake()
	p.mu.Unlock()
}

func (p *Partition) failure() (reason string, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason, p.state == Failed
}

// quick says whether prepare needs nothing but the local disk.
func (p *Partition) quick(epoch int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.swap) == 0 && p.stored == p.next && !p.mustJump() && p.localSuffices(epoch) && !p.wantsObject()
}
