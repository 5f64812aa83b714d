package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// run uploads one object until it is known what is under its number.
func (w *Writer) run(u *Upload) {
	defer w.loops.Done()
	defer u.stop()
	clean, err := w.send(u, w.compose(u))
	switch {
	case err == nil:
		w.landed(u)
	case errors.Is(err, ErrSealed):
		w.kill(u.Seq, err)
	default:
		w.give(u, err)
		return
	}
	if clean {
		w.recycle(u.b) // otherwise an attempt that timed out may still be reading the bytes
	}
	u.b = nil
}

// send puts the frozen bytes until it knows what became of them: nil, they are there; ErrSealed, they never will be; or the Writer's
// context ended. clean: the first attempt did it.
func (w *Writer) send(u *Upload, frozen []byte) (clean bool, err error) {
	key, body := w.o.Stream.Key(u.Seq), bucket.BytesBody(frozen)
	pause, doubt := w.o.RetryMin, false
	for try := 0; ; try++ {
		_, err := w.o.Bucket.Put(u.ctx, w.op, key, body, bucket.Condition{IfNoneMatch: true})
		if err == nil {
			w.failed(nil)
			return try == 0, nil
		}
		w.failed(err)
		if doubt = doubt || unknownOutcome(err); doubt {
			known, rerr := w.readBack(u, key)
			if known {
				return false, rerr
			}
			if rerr != nil {
				w.failed(rerr)
			}
		}
		serr := sleep(u.ctx, pause)
		if err := w.killed(u.Seq); err != nil {
			return false, err
		}
		if serr != nil {
			return false, fmt.Errorf("put object %d of WAL stream %v: %w", u.Seq, w.o.Stream, errors.Join(serr, err))
		}
		pause = min(2*pause, w.o.RetryMax)
	}
}

// unknownOutcome reports whether a put that failed with err may have happened, or have been beaten. Everything else says that the
// store refused it.
func unknownOutcome(err error) bool {
	for _, definite := range []error{bucket.ErrDenied, bucket.ErrConfig, bucket.ErrKey, bucket.ErrTooLarge, bucket.ErrRefused} {
		if errors.Is(err, definite) {
			return false
		}
	}
	return true
}

// readBack looks whose object is under the number. known is false when there is none, or it could not be read.
func (w *Writer) readBack(u *Upload, key string) (known bool, err error) {
	var b [headerLen]byte
	if _, _, err := w.o.Bucket.Get(u.ctx, w.op, key, 0, headerLen, b[:]); err != nil {
		if errors.Is(err, bucket.ErrNotFound) {
			return false, nil
		}
		return false, err
	}
	h, err := parseHeader(b[:])
	switch {
	case errors.Is(err, tier.ErrFeature):
		return true, fmt.Errorf("object %d of WAL stream %v is of a newer version (%w): %w", u.Seq, w.o.Stream, err, ErrSealed)
	case err != nil:
		return false, withKey(err, key)
	case h.seal:
		return true, fmt.Errorf("object %d of WAL stream %v: %w", u.Seq, w.o.Stream, ErrSealed)
	case h.of(w.o.Stream, u.Seq) && (h.attempt == u.h.attempt || u.Seq == 0):
		// An opening object is the same whoever put it: a start whose first try was cut off goes on.
		return true, nil
	}
	return true, fmt.Errorf("object %d of WAL stream %v was put by another writer (%x, this is %x): %w", u.Seq, w.o.Stream, h.writer, w.id, ErrSealed)
}

// failed counts a failed attempt; nil forgets the last one.
func (w *Writer) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.stats.LastError = ""
		return
	}
	w.stats.Retries++
	w.stats.LastError = err.Error()
}

// killed reports whether a number was lost to a seal below it.
func (w *Writer) killed(seq uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadErr != nil && seq >= w.deadFrom {
		return w.deadErr
	}
	return nil
}

// landed notes that an object is in the bucket, and acknowledges all that have nothing missing before them.
func (w *Writer) landed(u *Upload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u.landed = true
	for len(w.inFlight) > 0 && w.inFlight[0].landed {
		u := w.inFlight[0]
		w.inFlight[0] = nil
		w.inFlight = w.inFlight[1:]
		w.acked = u.Seq + 1
		w.durable = max(w.durable, u.h.floor)
		w.stats.LastLatency = time.Since(u.started)
		close(u.done)
		<-w.slots
	}
}

// kill fails a number and all behind it: what is under it isn't ours.
func (w *Writer) kill(seq uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadErr == nil {
		w.deadErr, w.deadFrom = err, seq
		close(w.dead)
	}
	w.deadFrom = min(w.deadFrom, seq)
	w.drop(w.deadFrom, w.deadErr)
}

// give ends the wait for a number without knowing what became of it. Those behind it cannot be acknowledged either.
func (w *Writer) give(u *Upload, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(u.Seq, err)
}

// drop fails all uploads from a number on that are not acknowledged.
func (w *Writer) drop(from uint64, err error) {
	w.inFlight = slices.DeleteFunc(w.inFlight, func(u *Upload) bool {
		if u.Seq < from {
			return false
		}
		u.err = err
		close(u.done)
		u.stop()
		<-w.slots
		return true
	})
}

// Next is the number that the next Put gets.
func (w *Writer) Next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// SetFloor says which number is the lowest that may still matter. The next objects carry it, though never one above the newest
// acknowledged object. It never falls.
func (w *Writer) SetFloor(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.floor = max(w.floor, seq)
}

// Stats returns where the writer stands.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Next, s.Acked, s.Floor, s.Sealed = w.next, w.acked, w.floor, w.deadErr != nil
	s.LiveObjects, s.LiveBytes, s.InFlight = len(w.live), w.liveBytes, len(w.inFlight)
	return s
}

// Sweep deletes own objects below the floor that an acknowledged object carries, at most a thousand, and returns how many. now is in
// milliseconds. It may be called again after a failure.
func (w *Writer) Sweep(ctx context.Context, now int64) (int, error) {
	w.mu.Lock()
	from, to := w.swept, min(w.durable, w.swept+bucket.MaxList)
	w.mu.Unlock()
	if from == to {
		return 0, nil
	}
	keys := make([]string, 0, to-from)
	for seq := from; seq < to; seq++ {
		keys = append(keys, w.o.Stream.Key(seq))
	}
	op := bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindWAL}
	if err := w.o.Bucket.Delete(ctx, op, keys); err != nil {
		return 0, fmt.Errorf("sweep WAL stream %v: %w", w.o.Stream, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swept, w.stats.LastSweep = max(w.swept, to), now
	n := 0
	for n < len(w.live) && w.live[n].seq < w.swept {
		w.liveBytes -= w.live[n].size
		n++
	}
	w.live = slices.Clone(w.live[n:])
	return len(keys), nil
}

// Close refuses further Puts and waits until what is under way is acknowledged or ctx ends, whose error it returns then. It does not
// seal: the stream stays as it is for whoever needs it. A second call is the same.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		close(w.ended)
	}
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		w.loops.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("close WAL stream %v: %w", w.o.Stream, context.Cause(ctx))
	}
	w.stop()
	<-done
	return err
}
