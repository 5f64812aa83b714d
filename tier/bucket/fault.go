package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrCrashed is what a Fault answers after its crash, until Revive.
var ErrCrashed = errors.New("crashed by plan")

// Verbs of Call and of the decorators.
const (
	VerbGet     = "get"
	VerbPut     = "put"
	VerbStat    = "stat"
	VerbList    = "list"
	VerbDelete  = "delete"
	VerbUploads = "uploads"
)

// Call describes one call to a Fault's plan. GetAll counts as one VerbGet.
type Call struct {
	N         int // 1 for the first call
	Verb      string
	Op        Op
	Key       string // prefix for list and uploads, the first key for delete
	Keys      int    // number of keys of a delete
	Condition Condition
}

// Writes tells whether the call changes the bucket.
func (c Call) Writes() bool { return c.Verb == VerbPut || c.Verb == VerbDelete }

// Action is what happens to a call. The zero value lets it pass.
type Action struct {
	Hold    <-chan struct{} // wait until closed (or ctx ends) before anything else
	Latency time.Duration   // then wait this long
	Before  error           // fail without effect
	After   error           // take effect, then fail: the caller can't know
	Crash   bool            // this call fails as Before and After say (before, if neither is set), all later ones without effect
	Cut     bool            // get: half of the bytes arrive, then the connection breaks
	Flip    bool            // get, put: the lowest bit of the byte at FlipAt modulo the length arrives flipped
	FlipAt  int64
	Partial bool // delete: only the first half of the keys is removed, the others fail with After, or ErrUnavailable
}

// Plan decides what happens to each call. It is called under a lock, in the order in which calls arrive, so a plan that
// depends on Call alone makes faults reproducible.
type Plan func(Call) Action

// Fault is a bucket that fails as planned. It may be used by many goroutines.
type Fault struct {
	b Bucket

	mu      sync.Mutex
	plan    Plan
	calls   int
	crashed bool
}

// NewFault wraps b. A nil plan lets everything pass.
func NewFault(b Bucket, plan Plan) *Fault { return &Fault{b: b, plan: plan} }

// FailAt fails the k-th call (from 1) with err, without effect.
func FailAt(k int, err error) Plan {
	return func(c Call) Action { return Action{Before: when(c.N == k, err)} }
}

// FailAfterAt lets the k-th call take effect and fails it with err.
func FailAfterAt(k int, err error) Plan {
	return func(c Call) Action { return Action{After: when(c.N == k, err)} }
}

// CrashAt crashes at the k-th call: before it takes effect, or after.
func CrashAt(k int, after bool) Plan {
	return func(c Call) Action {
		if c.N != k {
			return Action{}
		}
		if after {
			return Action{Crash: true, After: ErrCrashed}
		}
		return Action{Crash: true, Before: ErrCrashed}
	}
}

// Only applies plan to calls that match, which it numbers from 1; all others pass.
func Only(match func(Call) bool, plan Plan) Plan {
	n := 0
	return func(c Call) Action {
		if !match(c) {
			return Action{}
		}
		n++
		c.N = n
		return plan(c)
	}
}

func when(cond bool, err error) error {
	if cond {
		return err
	}
	return nil
}

// SetPlan replaces the plan. Calls go on being counted.
func (f *Fault) SetPlan(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = p
}

// Calls is the number of calls so far; those refused after a crash are not counted.
func (f *Fault) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Crashed tells whether the planned crash has happened.
func (f *Fault) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Revive ends the crash and counts from zero again under a new plan: the process that comes back.
func (f *Fault) Revive(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed, f.calls, f.plan = false, 0, p
}

// begin asks the plan, waits as told, and returns the error to fail with before any effect.
func (f *Fault) begin(ctx context.Context, c Call) (Action, error) {
	f.mu.Lock()
	if f.crashed {
		f.mu.Unlock()
		return Action{}, newError(c.Verb, c.Key, ErrUnavailable, ErrCrashed)
	}
	f.calls++
	c.N = f.calls
	var a Action
	if f.plan != nil {
		a = f.plan(c)
	}
	if a.Crash {
		f.crashed = true
		if a.Before == nil && a.After == nil {
			a.Before = ErrCrashed
		}
	}
	f.mu.Unlock()
	if err := a.wait(ctx); err != nil {
		return a, newError(c.Verb, c.Key, ErrUnavailable, err)
	}
	return a, planned(c, a.Before)
}

func (a Action) wait(ctx context.Context) error {
	if a.Hold != nil {
		select {
		case <-a.Hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if a.Latency <= 0 {
		return nil
	}
	t := time.NewTimer(a.Latency)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// planned dresses err as what a store would answer: sentinels stay, others become ErrUnavailable.
func planned(c Call, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	for _, kind := range []error{ErrNotFound, ErrPrecondition, ErrRange, ErrTooLarge, ErrDenied, ErrCorrupt, ErrConfig, ErrKey, ErrRefused} {
		if errors.Is(err, kind) {
			return newError(c.Verb, c.Key, kind, fmt.Errorf("by plan"))
		}
	}
	return newError(c.Verb, c.Key, ErrUnavailable, err)
}

// Get implements Bucket.
func (f *Fault) Get(ctx context.Context, op Op, key string, off, n int64, dst []byte) (int, Info, error) {
	c := Call{Verb: VerbGet, Op: op, Key: key}
	a, err := f.begin(ctx, c)
	if err != nil {
		return 0, Info{}, err
	}
	got, info, err := f.b.Get(ctx, op, key, off, n, dst)
	if err != nil {
		return got, info, err
	}
	if err := a.spoil(c, dst[:got]); err != nil {
		return 0, Info{}, err
	}
	return got, info, nil
}

// GetWhole implements Whole.
func (f *Fault) GetWhole(ctx context.Context, op Op, key string, limit int64) ([]byte, Info, error) {
	c := Call{Verb: VerbGet, Op: op, Key: key}
	a, err := f.begin(ctx, c)
	if err != nil {
		return nil, Info{}, err
	}
	b, info, err := GetAll(ctx, f.b, op, key, limit)
	if err != nil {
		return b, info, err
	}
	if err := a.spoil(c, b); err != nil {
		return nil, Info{}, err
	}
	return b, info, nil
}

// spoil does to the bytes of a get what the plan says.
func (a Action) spoil(c Call, b []byte) error {
	if a.Flip && len(b) > 0 {
		b[uint64(a.FlipAt)%uint64(len(b))] ^= 1
	}
	if a.Cut {
		clear(b[len(b)/2:])
		return newError(c.Verb, c.Key, ErrUnavailable, io.ErrUnexpectedEOF)
	}
	return planned(c, a.After)
}

// Put implements Bucket.
func (f *Fault) Put(ctx context.Context, op Op, key string, body Body, cond Condition) (Info, error) {
	c := Call{Verb: VerbPut, Op: op, Key: key, Condition: cond}
	a, err := f.begin(ctx, c)
	if err != nil {
		return Info{}, err
	}
	if a.Flip && body.Size() > 0 {
		body = &flippedBody{Body: body, at: int64(uint64(a.FlipAt) % uint64(body.Size()))}
	}
	info, err := f.b.Put(ctx, op, key, body, cond)
	if err == nil && a.After != nil {
		return Info{}, planned(c, a.After)
	}
	return info, err
}

// Stat implements Bucket.
func (f *Fault) Stat(ctx context.Context, op Op, key string) (Info, error) {
	c := Call{Verb: VerbStat, Op: op, Key: key}
	a, err := f.begin(ctx, c)
	if err != nil {
		return Info{}, err
	}
	info, err := f.b.Stat(ctx, op, key)
	if err == nil && a.After != nil {
		return Info{}, planned(c, a.After)
	}
	return info, err
}

// List implements Bucket.
func (f *Fault) List(ctx context.Context, op Op, prefix, after string, max int) (Page, error) {
	c := Call{Verb: VerbList, Op: op, Key: prefix}
	a, err := f.begin(ctx, c)
	if err != nil {
		return Page{}, err
	}
	p, err := f.b.List(ctx, op, prefix, after, max)
	if err == nil && a.After != nil {
		return Page{}, planned(c, a.After)
	}
	return p, err
}

// Delete implements Bucket.
func (f *Fault) Delete(ctx context.Context, op Op, keys []string) error {
	c := Call{Verb: VerbDelete, Op: op, Keys: len(keys)}
	if len(keys) > 0 {
		c.Key = keys[0]
	}
	a, err := f.begin(ctx, c)
	if err != nil {
		return err
	}
	if a.Partial {
		return f.deletePart(ctx, c, keys, a.After)
	}
	if err := f.b.Delete(ctx, op, keys); err != nil {
		return err
	}
	return planned(c, a.After)
}

func (f *Fault) deletePart(ctx context.Context, c Call, keys []string, cause error) error {
	half := (len(keys) + 1) / 2
	if err := f.b.Delete(ctx, c.Op, keys[:half]); err != nil {
		return err
	}
	if cause == nil {
		cause = ErrUnavailable
	}
	failed := failures{}
	for _, k := range keys[half:] {
		failed[k] = planned(Call{Verb: VerbDelete, Key: k}, cause)
	}
	return failed.err()
}

// Uploads implements Bucket.
func (f *Fault) Uploads(ctx context.Context, op Op, prefix string, abort bool) ([]Upload, error) {
	c := Call{Verb: VerbUploads, Op: op, Key: prefix}
	a, err := f.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	ups, err := f.b.Uploads(ctx, op, prefix, abort)
	if err == nil && a.After != nil {
		return nil, planned(c, a.After)
	}
	return ups, err
}

// flippedBody gives the bytes of a body with one bit flipped, and the checksum of the right ones.
type flippedBody struct {
	Body
	at int64
}

func (b *flippedBody) Open() (io.ReadCloser, error) {
	r, err := b.Body.Open()
	if err != nil {
		return nil, err
	}
	return &flippingReader{ReadCloser: r, at: b.at}, nil
}

type flippingReader struct {
	io.ReadCloser
	at int64
}

func (r *flippingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.at >= 0 && r.at < int64(n) {
		p[r.at] ^= 1
	}
	r.at -= int64(n)
	return n, err
}
