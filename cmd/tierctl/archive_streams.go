package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// streamCheck compares WAL streams with the heads that name parts of them, both
// ways.
type streamCheck struct {
	a       *tier.Archive
	named   map[partPlace]namedPart
	streams map[wal.StreamID]bool
}

type partPlace struct {
	key string
	off int64
}

type namedPart struct {
	head *tier.Head
	ext  tier.Extent
	seen bool
}

// newStreamCheck collects the extents of heads that lie in WAL objects.
func newStreamCheck(ctx context.Context, a *tier.Archive, heads []*tier.Head) *streamCheck {
	c := &streamCheck{a: a, named: map[partPlace]namedPart{}, streams: map[wal.StreamID]bool{}}
	for _, h := range heads {
		if h.Tombstone {
			continue
		}
		for e, err := range a.Extents(ctx, h) {
			if err != nil {
				break // told by Verify
			}
			if e.Kind != tier.KindWAL {
				continue
			}
			c.named[partPlace{e.Key, e.Off}] = namedPart{head: h, ext: e}
			if id, _, ok := wal.ParseKey(e.Key); ok {
				c.streams[id] = true
			}
		}
	}
	return c
}

// verify checks the streams that the heads name, or all of the bucket's.
func (c *streamCheck) verify(ctx context.Context, b bucket.Bucket, all, quick bool, r *verifyResult) error {
	if all {
		ids, err := wal.List(ctx, b)
		if err != nil {
			return err
		}
		for _, id := range ids {
			c.streams[id] = true
		}
	}
	ids := make([]wal.StreamID, 0, len(c.streams))
	for id := range c.streams {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b wal.StreamID) int {
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	for _, id := range ids {
		opts := wal.VerifyOptions{MetaOnly: quick || !all, Entry: func(e *wal.Entry) { c.entry(e, r) }}
		err := wal.Verify(ctx, b, toolOp(""), id, opts, func(p tier.Problem) {
			x := verifyProblem{Topic: "WAL stream " + id.String(), Partition: -1, Key: p.Key, Offset: p.Offset, What: p.What}
			if p.Note {
				r.Notes = append(r.Notes, x)
			} else {
				r.Problems = append(r.Problems, x)
			}
		})
		if err != nil {
			return err
		}
		r.Streams++
	}
	for at, n := range c.named {
		if !n.seen && c.held(ctx, at.key, &n) {
			r.Problems = append(r.Problems, verifyProblem{Topic: n.head.Topic, Partition: n.head.ID.Partition, Key: at.key, Offset: n.ext.Start,
				What: fmt.Sprintf("no footer of a WAL object describes the part at byte %d that the head names", at.off)})
		}
	}
	return nil
}

// held looks whether the head still names the part: a broker that is alive may have
// merged it meanwhile.
func (c *streamCheck) held(ctx context.Context, key string, n *namedPart) bool {
	h, err := c.a.Load(ctx, n.head.ID)
	if err != nil {
		return true
	}
	held, err := c.a.HoldsWAL(ctx, h, tier.PendingStream{}, key, n.ext.Start, n.ext.End)
	return held || err != nil
}

// entry compares a part, as its own object describes it, with what a head says.
func (c *streamCheck) entry(e *wal.Entry, r *verifyResult) {
	at := partPlace{e.Key, e.Off}
	n, ok := c.named[at]
	if !ok {
		return
	}
	n.seen = true
	c.named[at] = n
	x := &n.ext
	if e.ID != n.head.ID || e.Len != x.Len || e.CRC != x.CRC || x.Start < e.Start || x.End > e.End {
		r.Problems = append(r.Problems, verifyProblem{Topic: n.head.Topic, Partition: n.head.ID.Partition, Key: e.Key, Offset: x.Start,
			What: fmt.Sprintf("the part at byte %d is [%d, %d) of %v with %d bytes and checksum %08x, the head says [%d, %d) with %d and %08x",
				e.Off, e.Start, e.End, e.ID, e.Len, e.CRC, x.Start, x.End, x.Len, x.CRC)})
	}
}
