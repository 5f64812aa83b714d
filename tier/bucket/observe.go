package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// record is what a decorated call was and how it ended.
type record struct {
	verb   string
	op     Op
	args   string
	bytes  int64 // moved in either direction
	took   time.Duration
	result string
	err    error
}

// observer is a bucket that reports every call after it has ended.
type observer struct {
	b      Bucket
	report func(record)
}

// NewTrace wraps b so that every call is told to line as one line of text when it ends:
//
//	put head/3f/AAE/0 [head head] 212 bytes, replace: ok
//	get data/3f/AAE/0/0-1-x.tbd [cold data] 4194304+1024: not found
//
// Lines hold no times, ETags or other things that change from run to run, so a scenario's lines can be kept and compared.
// line is called by the caller's goroutine and must be safe for as many of them as use the bucket.
func NewTrace(b Bucket, line func(string)) Bucket {
	return &observer{b: b, report: func(r record) {
		line(fmt.Sprintf("%s %s [%s]: %s", r.verb, r.args, strings.TrimSpace(r.op.Class+" "+r.op.Kind), r.text()))
	}}
}

// NewMeter wraps b so that observe learns of every call when it ends: its label, verb, the bytes it moved, how long it took, and
// its error. observe must be fast and safe for concurrent use.
func NewMeter(b Bucket, observe func(op Op, verb string, bytes int64, d time.Duration, err error)) Bucket {
	return &observer{b: b, report: func(r record) { observe(r.op, r.verb, r.bytes, r.took, r.err) }}
}

func (r record) text() string {
	if r.err == nil {
		if r.result == "" {
			return "ok"
		}
		return r.result
	}
	var failed *DeleteError
	if errors.As(r.err, &failed) {
		return fmt.Sprintf("%d keys failed", len(failed.Failed))
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{ErrPrecondition, "precondition failed"}, {ErrNotFound, "not found"}, {ErrRange, "outside"}, {ErrTooLarge, "too large"},
		{ErrDenied, "denied"}, {ErrCorrupt, "corrupt"}, {ErrConfig, "misconfigured"}, {ErrKey, "invalid key"}, {ErrRefused, "refused"},
		{ErrUnavailable, "unavailable"},
	} {
		if errors.Is(r.err, known.err) {
			return known.text
		}
	}
	return "error"
}

func (o *observer) end(start time.Time, r record, err error) {
	r.took, r.err = time.Since(start), err
	if err != nil {
		r.bytes = 0
	}
	o.report(r)
}

// Get implements Bucket.
func (o *observer) Get(ctx context.Context, op Op, key string, off, n int64, dst []byte) (int, Info, error) {
	start := time.Now()
	got, info, err := o.b.Get(ctx, op, key, off, n, dst)
	o.end(start, record{verb: VerbGet, op: op, args: fmt.Sprintf("%s %d+%d", key, off, n), bytes: int64(got)}, err)
	return got, info, err
}

// GetWhole implements Whole.
func (o *observer) GetWhole(ctx context.Context, op Op, key string, limit int64) ([]byte, Info, error) {
	start := time.Now()
	b, info, err := GetAll(ctx, o.b, op, key, limit)
	o.end(start, record{verb: VerbGet, op: op, args: key, bytes: int64(len(b)), result: fmt.Sprintf("%d bytes", len(b))}, err)
	return b, info, err
}

// Put implements Bucket.
func (o *observer) Put(ctx context.Context, op Op, key string, body Body, cond Condition) (Info, error) {
	start := time.Now()
	info, err := o.b.Put(ctx, op, key, body, cond)
	how := ""
	if cond.IfNoneMatch {
		how = ", create"
	} else if cond.IfMatch != "" {
		how = ", replace"
	}
	o.end(start, record{verb: VerbPut, op: op, args: fmt.Sprintf("%s %d bytes%s", key, body.Size(), how), bytes: body.Size()}, err)
	return info, err
}

// Stat implements Bucket.
func (o *observer) Stat(ctx context.Context, op Op, key string) (Info, error) {
	start := time.Now()
	info, err := o.b.Stat(ctx, op, key)
	o.end(start, record{verb: VerbStat, op: op, args: key, result: fmt.Sprintf("%d bytes", info.Size)}, err)
	return info, err
}

// List implements Bucket.
func (o *observer) List(ctx context.Context, op Op, prefix, after string, max int) (Page, error) {
	start := time.Now()
	p, err := o.b.List(ctx, op, prefix, after, max)
	args := prefix
	if after != "" {
		args += " after " + after
	}
	result := fmt.Sprintf("%d keys", len(p.Items))
	if p.Next != "" {
		result += ", more"
	}
	o.end(start, record{verb: VerbList, op: op, args: args, result: result}, err)
	return p, err
}

// Delete implements Bucket.
func (o *observer) Delete(ctx context.Context, op Op, keys []string) error {
	start := time.Now()
	err := o.b.Delete(ctx, op, keys)
	o.end(start, record{verb: VerbDelete, op: op, args: strings.Join(keys, " ")}, err)
	return err
}

// Uploads implements Bucket.
func (o *observer) Uploads(ctx context.Context, op Op, prefix string, abort bool) ([]Upload, error) {
	start := time.Now()
	ups, err := o.b.Uploads(ctx, op, prefix, abort)
	args := prefix
	if abort {
		args += " abort"
	}
	o.end(start, record{verb: VerbUploads, op: op, args: args, result: fmt.Sprintf("%d uploads", len(ups))}, err)
	return ups, err
}
