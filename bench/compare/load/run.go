package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stampBytes of each record's value hold when it should have been sent, in nanoseconds of the worker's clock; zero where nobody asks.
const stampBytes = 8

// run is a job at work.
type run struct {
	Job
	driver Driver
	clock  clock

	produced, consumed counter
	ack, endToEnd      *Recorder
	// begin and end of the window on the clock; far ahead as long as they aren't known.
	begin, end atomic.Int64
	due        int64        // records of an open loop that should be sent in the window
	acked      atomic.Int64 // of them, acknowledged
	arrived    atomic.Int64 // of them, at consumers

	group sync.WaitGroup
	fail  context.CancelCauseFunc
}

type counter struct{ records, bytes atomic.Int64 }

func (c *counter) add(records, bytes int64) {
	c.records.Add(records)
	c.bytes.Add(bytes)
}

func (c *counter) total() Total { return Total{c.records.Load(), c.bytes.Load()} }

func (t Total) since(b Total) Total { return Total{t.Records - b.Records, t.Bytes - b.Bytes} }

// clock is wall time that never jumps.
type clock struct{ base time.Time }

func (c clock) now() int64 { return c.base.UnixNano() + int64(time.Since(c.base)) }

const never = int64(1) << 62

// errOver ends what runs until it is told to end.
var errOver = errors.New("over")

// do is a whole job.
func do(ctx context.Context, j Job, mark func(Mark)) (o Outcome, err error) {
	open := Drivers[j.Protocol]
	if open == nil {
		return o, fmt.Errorf("no client for %q", j.Protocol)
	}
	d, err := open(ctx, j.Address)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if j.Create {
		if err := d.CreateTopic(ctx, j.Topic); err != nil {
			return o, err
		}
	}
	if j.Produce == nil && j.Consume == nil {
		return o, nil
	}
	r := newRun(j, d)
	return r.measure(ctx, mark)
}

func newRun(j Job, d Driver) *run {
	r := &run{Job: j, driver: d, clock: clock{time.Now()}, ack: NewRecorder(), endToEnd: NewRecorder()}
	r.begin.Store(never)
	r.end.Store(never)
	return r
}

// snap is the state at one end of the window.
type snap struct {
	at                 int64
	produced, consumed Total
	cpu                time.Duration
}

func (r *run) snap() snap {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // can't fail for oneself
	return snap{r.clock.now(), r.produced.total(), r.consumed.total(), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (r *run) measure(parent context.Context, mark func(Mark)) (o Outcome, err error) {
	ctx, fail := context.WithCancelCause(parent)
	r.fail = fail
	defer r.group.Wait()
	defer fail(errOver)

	counted := r.Produce != nil && r.Produce.Bytes > 0 || r.Produce == nil && r.Consume.Records > 0
	var first, last snap
	if counted {
		mark(Begin)
		first = r.snap()
		r.begin.Store(first.at)
	}
	finished, err := r.start(ctx, fail)
	if err != nil {
		return o, err
	}
	if counted {
		select {
		case <-finished:
		case <-ctx.Done():
		}
	} else {
		if err := sleep(ctx, r.clock, r.begin.Load()); err != nil {
			return o, err
		}
		mark(Begin)
		first = r.snap()
		_ = sleep(ctx, r.clock, r.end.Load()) // asked below
	}
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	last = r.snap()
	mark(End)
	if counted {
		r.end.Store(last.at)
	}
	if err := r.drain(ctx); err != nil {
		return o, err
	}
	return r.outcome(first, last)
}

// start sets everyone to work. The channel is closed when all that was counted is done. The window of a job with a length is laid
// when everyone is ready.
func (r *run) start(ctx context.Context, fail context.CancelCauseFunc) (finished chan struct{}, err error) {
	finished = make(chan struct{})
	var consume, produce []func(context.Context) error
	if r.Consume != nil {
		if consume, err = r.consumers(ctx); err != nil {
			return nil, err
		}
	}
	if r.Produce != nil {
		if produce, err = r.producers(); err != nil {
			return nil, err
		}
	}
	if r.begin.Load() == never {
		begin := r.clock.now() + int64(r.Warm)
		r.end.Store(begin + int64(r.Run))
		r.begin.Store(begin)
	}
	var all sync.WaitGroup
	for _, work := range append(consume, produce...) {
		all.Add(1)
		r.group.Go(func() {
			defer all.Done()
			if err := work(ctx); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
	r.group.Go(func() {
		all.Wait()
		close(finished)
	})
	return finished, nil
}

// Longest time in which an open loop's last records may arrive.
const drainFor = 10 * time.Second

// drain waits for the records of an open loop whose time came in the window: those that a broker is late with are what counts most. What isn't
// there at the end is taken as if it came then.
func (r *run) drain(ctx context.Context) error {
	if r.Produce == nil || r.Produce.Rate == 0 {
		return nil
	}
	readings := int64(0)
	if r.Consume != nil {
		readings = int64(r.Consume.FanOut)
	}
	missing := func() (acks, arrivals int64) {
		return r.due - r.acked.Load(), r.due*readings - r.arrived.Load()
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(drainFor); time.Now().Before(deadline); {
		if acks, arrivals := missing(); acks <= 0 && arrivals <= 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	late := time.Duration(r.clock.now() - r.end.Load())
	acks, arrivals := missing()
	if acks > 0 {
		r.ack.Record(late, acks)
	}
	if arrivals > 0 {
		r.endToEnd.Record(late, arrivals)
	}
	return nil
}

func (r *run) outcome(first, last snap) (o Outcome, err error) {
	o.Seconds = time.Duration(last.at - first.at).Seconds()
	o.Produced, o.Consumed = last.produced.since(first.produced), last.consumed.since(first.consumed)
	o.CPU = last.cpu - first.cpu
	if r.Produce != nil && r.Produce.Rate > 0 {
		o.Unfinished = r.due - r.acked.Load()
	}
	var errs [2]error
	o.Ack, errs[0] = r.ack.Distribution()
	o.EndToEnd, errs[1] = r.endToEnd.Distribution()
	return o, errors.Join(errs[:]...)
}

// inWindow tells whether a moment lies in the measured window.
func (r *run) inWindow(at int64) bool { return at >= r.begin.Load() && at < r.end.Load() }

// sleep waits until a moment on the clock.
func sleep(ctx context.Context, c clock, until int64) error {
	d := time.Duration(until - c.now())
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
