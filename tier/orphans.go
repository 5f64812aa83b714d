package tier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// SweepPartition deletes what is provably dead of a partition: what was dropped at least delay ago; objects and pages that nothing
// names and that were uploaded under an epoch before the head's; and those handed to Discard. It aborts unfinished uploads of
// earlier epochs. It lists the partition's objects, so it is for once in a while; SweepDropped is for every few minutes. h may be
// nil. Only the head's owner may call it.
func (a *Archive) SweepPartition(ctx context.Context, id frame.PartitionID, h *Head, now int64, delay time.Duration) (*Head, Report, error) {
	if h == nil {
		var err error
		if h, err = a.Load(ctx, id); err != nil {
			return nil, Report{}, err
		}
	}
	h, r, err := a.SweepDropped(ctx, id, h, now, delay)
	if err != nil {
		return h, r, err
	}
	if err := a.sweepOrphans(ctx, h.ID, &r); err != nil {
		return h, r, fmt.Errorf("sweep %v: %w", id, err)
	}
	r.Aborted, err = a.abortUploads(ctx, h)
	return h, r, err
}

// candidate is an object that a quick look didn't find in the head.
type candidate struct {
	size int64
	dead bool // if nothing names it; otherwise it is in flight
}

// sweepOrphans lists what the partition has, and deletes what no head can name any more.
func (a *Archive) sweepOrphans(ctx context.Context, id frame.PartitionID, r *Report) error {
	handed := map[string]discard{}
	a.mu.Lock()
	for _, d := range a.discards[id] {
		handed[d.key] = d
	}
	a.mu.Unlock()
	// Only a head that the bucket shows now says what nothing names: the caller's may be older than an object's commit. What is
	// uploaded after this carries this head's epoch or a later one.
	h, err := a.Load(ctx, id)
	if err != nil {
		return err
	}
	cands := map[string]candidate{}
	visit := func(i bucket.Info) error {
		epoch, ok := keyEpoch(i.Key)
		switch {
		case !ok:
			r.Unknown = report(r.Unknown, i.Key, r)
		case len(cands) >= maxSweepObjects:
			r.More = true
		case !a.named(ctx, h, i.Key):
			d, mine := handed[i.Key]
			cands[i.Key] = candidate{size: i.Size, dead: epoch < h.Epoch || mine && h.Version >= d.version}
		}
		return nil
	}
	op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: bucket.KindData}
	if err := listAll(ctx, a.opts.Sweep, op, DataPrefix(id), visit); err != nil {
		return err
	}
	op.Kind = bucket.KindPage
	if err := listAll(ctx, a.opts.Sweep, op, PagePrefix(id), visit); err != nil {
		return err
	}
	if err := a.deleteOrphans(ctx, h, cands, r); err != nil {
		return err
	}
	a.forgetDiscards(h, handed)
	return nil
}

// deleteOrphans takes out of the candidates what the head or an older head names, and deletes those of the rest that are dead.
func (a *Archive) deleteOrphans(ctx context.Context, h *Head, cands map[string]candidate, r *Report) error {
	if len(cands) == 0 {
		return nil
	}
	if err := a.allRefs(ctx, h, func(key string) { delete(cands, key) }); err != nil {
		return err
	}
	if len(cands) == 0 {
		return nil
	}
	keep, err := a.historyRefs(ctx, h)
	if err != nil {
		return err
	}
	del := deleter{a: a, ctx: ctx, topic: h.Topic, keep: keep, r: r}
	for _, key := range slices.Sorted(maps.Keys(cands)) {
		if !cands[key].dead {
			r.InFlight = report(r.InFlight, key, r)
		} else if err := del.add(key, cands[key].size); err != nil {
			return err
		}
	}
	return del.flush()
}

// keyEpoch returns the epoch of who uploaded a data object or a page.
func keyEpoch(key string) (int32, bool) {
	if n, ok := ParseDataKey(key); ok {
		return n.Epoch, true
	}
	_, epoch, ok := parsePageKey(key)
	return epoch, ok
}

func report(list []string, key string, r *Report) []string {
	if len(list) >= maxReported {
		r.More = true
		return list
	}
	return append(list, key)
}

// named is a quick look whether the head names a data object where its key says that it should. false means nothing yet.
func (a *Archive) named(ctx context.Context, h *Head, key string) bool {
	n, ok := ParseDataKey(key)
	if !ok || n.Base < h.Start || n.Base >= h.End {
		return false
	}
	e, err := a.extentAt(ctx, h, n.Base)
	return err == nil && e.Key == key
}

// forgetDiscards drops those that are settled: swept, or part of the archive after all.
func (a *Archive) forgetDiscards(h *Head, settled map[string]discard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var left []discard
	for _, d := range a.discards[h.ID] {
		if _, ok := settled[d.key]; !ok || h.Version < d.version {
			left = append(left, d)
		}
	}
	if len(left) == 0 {
		delete(a.discards, h.ID)
		return
	}
	a.discards[h.ID] = left
}

// abortUploads aborts unfinished multipart uploads of earlier epochs: their objects could never be committed.
func (a *Archive) abortUploads(ctx context.Context, h *Head) (int, error) {
	op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: bucket.KindData}
	ups, err := a.opts.Sweep.Uploads(ctx, op, DataPrefix(h.ID), false)
	if err != nil {
		return 0, fmt.Errorf("list unfinished uploads of %v: %w", h.ID, err)
	}
	n := 0
	for _, u := range ups {
		if epoch, ok := keyEpoch(u.Key); !ok || epoch >= h.Epoch {
			continue
		}
		if _, err := a.opts.Sweep.Uploads(ctx, op, u.Key, true); err != nil {
			return n, fmt.Errorf("abort upload of %s: %w", u.Key, err)
		}
		n++
	}
	return n, nil
}

// AbortUploads aborts every unfinished multipart upload of a data object for which dead says so, wherever it is in the bucket. It
// returns how many there were.
func (a *Archive) AbortUploads(ctx context.Context, dead func(DataName) bool) (int, error) {
	op := bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindData}
	ups, err := a.opts.Sweep.Uploads(ctx, op, "", false)
	if err != nil {
		return 0, fmt.Errorf("list unfinished uploads: %w", err)
	}
	n := 0
	var errs []error
	for _, u := range ups {
		name, ok := ParseDataKey(u.Key)
		if !ok || !dead(name) {
			continue
		}
		if _, err := a.opts.Sweep.Uploads(ctx, op, u.Key, true); err != nil {
			errs = append(errs, fmt.Errorf("abort upload of %s: %w", u.Key, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}
