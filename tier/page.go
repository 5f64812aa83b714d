package tier

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Page is an immutable object that holds older extents (level 0), or pages of the level below.
type Page struct {
	Format  int               `json:"format"`
	ID      frame.PartitionID `json:"-"` // topicId and partition in JSON
	Level   int               `json:"level"`
	Pages   []PageRef         `json:"-"`
	Extents []Extent          `json:"-"`
}

type pageFields Page

type pageWire struct {
	TopicID   frame.TopicID `json:"topicId"`
	Partition int32         `json:"partition"`
	*pageFields
	Pages   []PageRef `json:"pages,omitempty"`
	Extents []Extent  `json:"extents,omitempty"`
}

const (
	pageFormat   = 1
	maxPageLevel = 8
)

// JSON returns what is inside of the page's envelope.
func (p *Page) JSON() ([]byte, error) {
	w := pageWire{TopicID: p.ID.Topic, Partition: p.ID.Partition, pageFields: (*pageFields)(p)}
	w.Extents, w.Pages = shortExtents(p.ID, p.Extents), shortPages(p.ID, p.Pages)
	b, err := json.Marshal(&w)
	if err != nil {
		return nil, fmt.Errorf("encode page: %w", err)
	}
	return b, nil
}

// Encode returns the page's bytes. ErrTooLarge: readers would refuse them.
func (p *Page) Encode() ([]byte, error) {
	plain, err := p.JSON()
	if err != nil {
		return nil, err
	}
	b := seal(pageFileMagic, plain, envelope{})
	if err := checkEnvelope("page", plain, b); err != nil {
		return nil, err
	}
	return b, nil
}

// DecodePage reads a page from hostile bytes. ErrCorrupt: they are none. ErrFeature: they are one of a newer version.
func DecodePage(b []byte) (*Page, error) {
	plain, _, err := unseal("page", pageFileMagic, b)
	if err != nil {
		return nil, err
	}
	w := pageWire{pageFields: &pageFields{}}
	if err := decodeJSON(plain, &w); err != nil {
		return nil, corrupt("page", "%v", err)
	}
	if w.pageFields == nil {
		return nil, corrupt("page", "it is null")
	}
	p := (*Page)(w.pageFields)
	p.ID = frame.PartitionID{Topic: w.TopicID, Partition: w.Partition}
	p.Pages, p.Extents = w.Pages, w.Extents
	longExtents(p.ID, p.Extents)
	longPages(p.ID, p.Pages)
	if p.Format != pageFormat {
		return nil, featureError("page format", uint64(max(p.Format, 0)))
	}
	if p.ID.Partition < 0 || p.Level < 0 || p.Level > maxPageLevel || p.Level == 0 && (len(p.Pages) > 0 || len(p.Extents) == 0) || p.Level > 0 && (len(p.Extents) > 0 || len(p.Pages) == 0) {
		return nil, corrupt("page", "level %d with %d extents and %d pages", p.Level, len(p.Extents), len(p.Pages))
	}
	if _, err := checkPages("page", p.Pages, -1, p.Level-1); err != nil {
		return nil, err
	}
	if _, err := checkExtents("page", p.Extents, -1); err != nil {
		return nil, err
	}
	return p, nil
}

// ref describes the page for its parent.
func (p *Page) ref(key string, size int64) PageRef {
	r := PageRef{Key: key, Level: p.Level, Size: size, MaxTimestamp: -1, RunningMax: -1, RetentionTime: -1}
	for i := range p.Extents {
		e := &p.Extents[i]
		r.add(e.Start, e.End, 1, e.MaxTimestamp, e.RunningMax, e.RetentionTime, e.Bytes, e.Records)
	}
	for i := range p.Pages {
		c := &p.Pages[i]
		r.add(c.Start, c.End, c.Count, c.MaxTimestamp, c.RunningMax, c.RetentionTime, c.Bytes, c.Records)
	}
	return r
}

func (r *PageRef) add(start, end, count, maxTimestamp, runningMax, retention, bytes, records int64) {
	if r.Count == 0 {
		r.Start = start
	}
	r.End = end
	r.Count += count
	r.MaxTimestamp = max(r.MaxTimestamp, maxTimestamp)
	r.RunningMax = max(r.RunningMax, runningMax)
	r.RetentionTime = max(r.RetentionTime, retention)
	r.Bytes += bytes
	r.Records += records
}

// spiller writes the pages that a roll needs. Its memory lets a roll that lost its swap use the same pages again.
type spiller struct {
	a     *Archive
	id    frame.PartitionID
	topic string
	epoch int32
	pages map[string]PageRef // by content
	used  map[string]bool    // keys that the last spill names

	version int64 // of the head that would name them
}

func (a *Archive) newSpiller(id frame.PartitionID, topic string, epoch int32) *spiller {
	return &spiller{a: a, id: id, topic: topic, epoch: epoch, pages: map[string]PageRef{}}
}

// spill moves the oldest extents of h into pages until the rest is small enough, and the oldest pages into pages of pages. It
// puts the pages into the bucket, where nothing refers to them until the head is swapped.
func (s *spiller) spill(ctx context.Context, h *Head) error {
	s.used = map[string]bool{}
	o := &s.a.opts
	for len(h.Extents) >= o.InlineExtents+o.PageExtents && !slices.ContainsFunc(h.Extents[:o.PageExtents], inWAL) {
		p := &Page{Format: pageFormat, ID: s.id, Extents: h.Extents[:o.PageExtents]}
		r, err := s.put(ctx, p)
		if err != nil {
			return err
		}
		h.Pages = append(h.Pages, r)
		h.Extents = slices.Clone(h.Extents[o.PageExtents:])
		if err := s.fold(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// inWAL: an extent in a WAL object stays in the head until a merge has put its batches into a data object, because merges look there
// only, and a WAL object dies with the last extent that names it.
func inWAL(e Extent) bool { return e.Kind == KindWAL }

// fold puts the oldest pages of a level into one of the next level when there are twice as many as fit.
func (s *spiller) fold(ctx context.Context, h *Head) error {
	n := s.a.opts.PageFanout
	for level := range maxPageLevel {
		first := slices.IndexFunc(h.Pages, func(r PageRef) bool { return r.Level == level })
		if first < 0 || len(h.Pages) < first+n {
			continue
		}
		last := first
		for last < len(h.Pages) && h.Pages[last].Level == level {
			last++
		}
		if last-first < 2*n {
			continue
		}
		r, err := s.put(ctx, &Page{Format: pageFormat, ID: s.id, Level: level + 1, Pages: h.Pages[first : first+n]})
		if err != nil {
			return err
		}
		h.Pages = slices.Replace(h.Pages, first, first+n, r)
	}
	return nil
}

func (s *spiller) put(ctx context.Context, p *Page) (PageRef, error) {
	plain, err := p.JSON()
	if err != nil {
		return PageRef{}, err
	}
	if r, ok := s.pages[string(plain)]; ok {
		s.used[r.Key] = true
		return r, nil
	}
	b, err := p.Encode()
	if err != nil {
		return PageRef{}, err
	}
	r := p.ref(pageKey(s.id, s.epoch), int64(len(b)))
	s.pages[string(plain)] = r
	s.used[r.Key] = true
	op := bucket.Op{Class: bucket.ClassRoll, Topic: s.topic, Kind: bucket.KindPage}
	if _, err := s.a.opts.Roll.Put(ctx, op, r.Key, bucket.BytesBody(b), bucket.Condition{}); err != nil {
		delete(s.pages, string(plain))
		s.a.Discard(s.id, r.Key, 0)
		return PageRef{}, fmt.Errorf("put page %s: %w", r.Key, err)
	}
	return r, nil
}

// leftover returns the keys of pages that were written and that the last spill doesn't name.
func (s *spiller) leftover(won bool) []string {
	var keys []string
	for _, r := range s.pages {
		if !won || !s.used[r.Key] {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// page returns a page from memory or bucket.
func (a *Archive) page(ctx context.Context, id frame.PartitionID, topic string, r *PageRef) (*Page, error) {
	return loadMeta(ctx, a.meta, r.Key, func(ctx context.Context) (*Page, int64, error) {
		p, err := a.readPage(ctx, a.opts.Cold, bucket.ClassCold, id, topic, r.Key)
		if err != nil {
			return nil, 0, err
		}
		if got := p.ref(r.Key, r.Size); got != *r {
			return nil, 0, &CorruptError{Key: r.Key, Part: "page", Reason: fmt.Sprintf("it holds [%d, %d) at level %d, its parent says [%d, %d) at level %d", got.Start, got.End, got.Level, r.Start, r.End, r.Level)}
		}
		return p, int64(len(p.Extents)+len(p.Pages))*extentCost + 512, nil
	})
}

// readPage reads a page from the bucket.
func (a *Archive) readPage(ctx context.Context, b bucket.Bucket, class string, id frame.PartitionID, topic, key string) (*Page, error) {
	p, _, err := readTwice(func() (*Page, bucket.Info, error) {
		raw, info, err := bucket.GetAll(ctx, b, bucket.Op{Class: class, Topic: topic, Kind: bucket.KindPage}, key, maxEnvelope)
		if err != nil {
			return nil, info, gone(err, key)
		}
		p, err := DecodePage(raw)
		return p, info, err
	})
	if err != nil {
		return nil, withKey(err, key)
	}
	if p.ID != id {
		return nil, &CorruptError{Key: key, Part: "page", Reason: "it belongs to " + p.ID.String()}
	}
	return p, nil
}

const (
	extentCost  = 320 // bytes of memory that an extent with its key takes
	loadTimeout = 2 * time.Minute
)
