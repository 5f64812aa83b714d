package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioBucket, About: "requests to the object store, by its own log", Short: true, Order: 60, Run: bucketRequests})
}

// bucketCase is what is written, and then replayed.
type bucketCase struct {
	durability system.Durability
	partitions int
	bytes      int64
	short      bool
}

var bucketCases = []bucketCase{
	{system.PageCache, 1, 4096 * mib, true},
	{system.PageCache, 16, 3072 * mib, false},
	{system.InBucket, 1, 512 * mib, false},
	{system.InBucket, 16, 1024 * mib, false},
}

// bucketRequests counts once: a count needs no turns.
func bucketRequests(ctx context.Context, b *Bench) error {
	for _, s := range b.Systems {
		if !isOurs(s) {
			continue
		}
		for _, c := range bucketCases {
			if c.durability != s.Durability || b.Short && !c.short {
				continue
			}
			name := fmt.Sprintf("%s, %d MiB", count(c.partitions, "partition"), c.bytes/mib)
			if err := b.bucketCase(ctx, s, c, name); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b.failed(report.ScenarioBucket, name, s.Name, 1, err)
			}
		}
	}
	return nil
}

func (b *Bench) bucketCase(ctx context.Context, s system.System, c bucketCase, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	h, err := b.hold(ctx, report.ScenarioBucket, "", s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.end()) }()
	h.Turn = 1
	t := load.Topic{Name: "requests", Partitions: c.partitions}
	// A topic's creation writes its wishes and its first heads, once in its life.
	if _, err := h.Load(ctx, load.Job{Topic: t, Create: true}); err != nil {
		return err
	}
	mark, err := h.s3.Log.Mark()
	if err != nil {
		return err
	}
	if err := h.append(ctx, t, c.bytes); err != nil {
		return err
	}
	stream, err := h.rolled(ctx, mark, c)
	if err != nil {
		return err
	}
	// What is left over is smaller than an object should be. It is in the count of all requests, not in that of the stream.
	if err := h.Running.Tier(ctx, t.Name); err != nil {
		return err
	}
	all, err := h.s3.Log.Since(mark)
	if err != nil {
		return err
	}
	f := h.topics[0]
	v := map[string]float64{}
	if rolled := stream.Stored["data"]; rolled > 0 {
		v[report.PutsPerRoll] = float64(stream.Writes()) / (float64(rolled) / (64 * mib))
	}
	perPrefix(v, "PUT", all, float64(f.Bytes)/1e9, account.Put, account.Multipart)
	// A process that has read nothing yet has nothing in memory.
	if err := errors.Join(h.Stop(ctx), h.Start(ctx)); err != nil {
		return err
	}
	if mark, err = h.s3.Log.Mark(); err != nil {
		return err
	}
	m, err := h.replay(ctx, f, 1, max(1, c.partitions/2))
	if err != nil {
		return err
	}
	got, err := h.s3.Log.Since(mark)
	if err != nil {
		return err
	}
	v[report.GetsPerRead] = float64(got.Reads()) / (float64(m.Consumed.Bytes) / (4 * mib))
	perPrefix(v, "GET", got, float64(m.Consumed.Bytes)/1e9, account.Get)
	h.ReportAs(name, Figures{Values: v})
	return nil
}

// rolled waits until all full objects are in the bucket, and their heads a moment later, and counts what that took.
func (h *held) rolled(ctx context.Context, mark account.LogMark, c bucketCase) (account.Requests, error) {
	const object, share = 64 * mib, 0.97 // an object is cut when the next batch would make it larger
	full := c.bytes / int64(c.partitions) / object * object * int64(c.partitions)
	if c.partitions > 1 {
		// The first objects of neighbours have different sizes, down to a half, so that they don't roll at the same moment for ever.
		full -= int64(c.partitions) * object / 2
	}
	ctx, cancel := context.WithTimeout(ctx, rollTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	before, since := int64(-1), time.Now()
	for {
		r, err := h.s3.Log.Since(mark)
		if err != nil {
			return r, err
		}
		if writes := r.Writes(); writes != before {
			before, since = writes, time.Now()
		}
		if float64(r.Stored["data"]) >= share*float64(full) && time.Since(since) > rollQuiet {
			return r, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, fmt.Errorf("%d of %d MiB are in the bucket after %v, and %d requests have written, the last %v before", r.Stored["data"]/mib, full/mib, rollTime,
				before, time.Since(since).Round(time.Millisecond))
		}
	}
}

// rollQuiet is how long nothing has been written when all is: a head may be swapped for several objects, the last of which it waits for.
const rollQuiet = 3 * time.Second

// rollTime is the longest time for what was acknowledged to be in the bucket.
const rollTime = time.Minute

// perPrefix adds requests of some kinds by GB, for each prefix of keys.
func perPrefix(v map[string]float64, verb string, r account.Requests, gb float64, kinds ...account.Kind) {
	prefixes := map[string]bool{}
	for req := range r.Count {
		prefixes[req.Prefix] = true
	}
	for p := range prefixes {
		if n := r.Of(p, kinds...); n > 0 && p != "" {
			v[fmt.Sprintf("%s of %s/GB", verb, p)] = float64(n) / gb
		}
	}
	v[verb+"/GB"] = float64(r.Of("", kinds...)) / gb
}
