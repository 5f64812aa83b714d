package tier

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
)

// Head is the root of a partition's archive. A Head that was loaded, or returned by a swap, is never changed: change a Clone.
type Head struct {
	Format             int               `json:"format"` // of this JSON: 1
	Cluster            string            `json:"cluster"`
	ClusterIncarnation string            `json:"clusterIncarnation"`
	Topic              string            `json:"topic"`
	ID                 frame.PartitionID `json:"-"`       // topicId and partition in JSON
	Version            int64             `json:"version"` // rises by one with each swap
	Attempt            string            `json:"attempt"` // unique for each attempt to swap
	Epoch              int32             `json:"epoch"`
	Owner              int32             `json:"owner"` // broker id
	OwnerIncarnation   string            `json:"ownerIncarnation"`
	Start              int64             `json:"start"`    // first offset that clients may read
	End                int64             `json:"end"`      // first offset that the archive doesn't cover
	Ceiling            int64             `json:"ceiling"`  // no offset at or above was ever assigned
	LastRoll           int64             `json:"lastRoll"` // offsets that the last roll added
	Epochs             []EpochStart      `json:"epochs"`
	ConfigRevision     int64             `json:"configRevision,omitempty"`
	SafeClass          string            `json:"safeClass,omitempty"` // durability that all data up to now has at least
	Producers          []byte            `json:"producers,omitempty"` // the partition's producer and transaction snapshot as of End
	Pending            []PendingStream   `json:"pending,omitempty"`
	MaxTimestamp       int64             `json:"maxTimestamp"` // running maximum, also of what is gone; -1 when there was nothing
	Bytes              int64             `json:"bytes"`        // of the batches of all live extents
	Records            int64             `json:"records"`
	Objects            int64             `json:"objects"` // live extents
	Pages              []PageRef         `json:"-"`       // oldest first
	Extents            []Extent          `json:"-"`       // those after the pages
	Dropped            []Dropped         `json:"-"`
	Compaction         json.RawMessage   `json:"compaction,omitempty"` // marks of the compactor, kept as they are
	Tombstone          bool              `json:"tombstone,omitempty"`  // the topic was deleted
	TombstoneTime      int64             `json:"tombstoneTime,omitempty"`

	etag     string
	features uint32 // write features as they were read
}

// Owner is who holds a partition.
type Owner struct {
	Broker      int32
	Incarnation string // of the broker's run
	Epoch       int32
}

const (
	headFormat  = 1
	minHeadroom = 1 << 20 // offsets between End and Ceiling, at least
)

// ETag is the head's tag in the bucket, empty for one that was not loaded or swapped.
func (h *Head) ETag() string { return h.etag }

// SetETag is for heads that were kept elsewhere (in an index) together with their tag.
func (h *Head) SetETag(tag string) { h.etag = tag }

// OwnerOf returns who holds the head.
func (h *Head) OwnerOf() Owner {
	return Owner{Broker: h.Owner, Incarnation: h.OwnerIncarnation, Epoch: h.Epoch}
}

// Clone returns a copy that may be changed.
func (h *Head) Clone() *Head {
	c := *h
	c.Epochs = slices.Clone(h.Epochs)
	c.Producers = slices.Clone(h.Producers)
	c.Pending = slices.Clone(h.Pending)
	c.Pages = slices.Clone(h.Pages)
	c.Extents = slices.Clone(h.Extents)
	c.Dropped = slices.Clone(h.Dropped)
	c.Compaction = slices.Clone(h.Compaction)
	return &c
}

type headFields Head

// headWire is the JSON of a head.
type headWire struct {
	TopicID   frame.TopicID `json:"topicId"`
	Partition int32         `json:"partition"`
	*headFields
	Pages   []PageRef `json:"pages,omitempty"`
	Extents []Extent  `json:"extents,omitempty"`
	Dropped []Dropped `json:"dropped,omitempty"`
}

// Summary returns how many extents the head names, pages included, and the bytes of their batches.
func (h *Head) Summary() (extents int, bytes int64) { return int(h.Objects), h.Bytes }

// JSON returns what is inside of the head's envelope.
func (h *Head) JSON() ([]byte, error) {
	w := headWire{TopicID: h.ID.Topic, Partition: h.ID.Partition, headFields: (*headFields)(h)}
	w.Extents = shortExtents(h.ID, h.Extents)
	w.Pages = shortPages(h.ID, h.Pages)
	w.Dropped = slices.Clone(h.Dropped)
	for i := range w.Dropped {
		d := &w.Dropped[i]
		d.Key = shorten(d.Key, d.prefix(h.ID))
	}
	b, err := json.Marshal(&w)
	if err != nil {
		return nil, fmt.Errorf("encode head: %w", err)
	}
	return b, nil
}

// Encode returns the head's bytes, nil when readers would refuse them as too large. A swap never makes such a head.
func (h *Head) Encode() []byte {
	b, err := h.encode()
	if err != nil {
		return nil
	}
	return b
}

func (h *Head) encode() ([]byte, error) {
	plain, err := h.JSON()
	if err != nil {
		return nil, err
	}
	b := seal(headFileMagic, plain, envelope{writeFeatures: h.features})
	if err := checkEnvelope("head", plain, b); err != nil {
		return nil, err
	}
	return b, nil
}

// prefix is what the JSON leaves out of the key.
func (d *Dropped) prefix(id frame.PartitionID) string {
	if d.Page {
		return PagePrefix(id)
	}
	return DataPrefix(id)
}

// DecodeHead reads a head from hostile bytes. ErrCorrupt: they are no head. ErrFeature: they are one of a newer version.
func DecodeHead(b []byte) (*Head, error) {
	plain, env, err := unseal("head", headFileMagic, b)
	if err != nil {
		return nil, err
	}
	w := headWire{headFields: &headFields{}}
	if err := decodeJSON(plain, &w); err != nil {
		return nil, corrupt("head", "%v", err)
	}
	if w.headFields == nil {
		return nil, corrupt("head", "it is null")
	}
	h := (*Head)(w.headFields)
	h.ID = frame.PartitionID{Topic: w.TopicID, Partition: w.Partition}
	h.Pages, h.Extents, h.Dropped = w.Pages, w.Extents, w.Dropped
	h.features = env.writeFeatures
	longExtents(h.ID, h.Extents)
	longPages(h.ID, h.Pages)
	for i := range h.Dropped {
		d := &h.Dropped[i]
		d.Key = lengthen(d.Key, d.prefix(h.ID))
	}
	if h.Format != headFormat {
		return nil, featureError("head format", uint64(max(h.Format, 0)))
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	return h, nil
}

// check says whether the head keeps its own invariants. Every head is checked before it is written and after it was read.
func (h *Head) check() error {
	if h.ID.Partition < 0 || h.Epoch < 0 || h.Version < 0 || h.Start < 0 || h.Start > h.End || h.End > h.Ceiling || h.Ceiling > maxOffset {
		return corrupt("head", "start %d, end %d, ceiling %d, epoch %d, version %d, partition %d", h.Start, h.End, h.Ceiling, h.Epoch, h.Version, h.ID.Partition)
	}
	end, err := checkPages("head", h.Pages, -1, maxPageLevel)
	if err != nil {
		return err
	}
	end, err = checkExtents("head", h.Extents, end)
	if err != nil {
		return err
	}
	if end >= 0 && end != h.End || end < 0 && h.Start != h.End {
		return corrupt("head", "extents end at %d, the head at %d", end, h.End)
	}
	if first, ok := h.firstOffset(); ok && first > h.Start {
		return corrupt("head", "extents begin at %d, the head at %d", first, h.Start)
	}
	for i := 1; i < len(h.Epochs); i++ {
		if a, b := h.Epochs[i-1], h.Epochs[i]; b.Epoch <= a.Epoch || b.Start < a.Start {
			return corrupt("head", "epoch %d at %d follows epoch %d at %d", b.Epoch, b.Start, a.Epoch, a.Start)
		}
	}
	return nil
}

// firstOffset is where the oldest page or extent begins.
func (h *Head) firstOffset() (int64, bool) {
	switch {
	case len(h.Pages) > 0:
		return h.Pages[0].Start, true
	case len(h.Extents) > 0:
		return h.Extents[0].Start, true
	}
	return 0, false
}

// raiseCeiling puts the ceiling to where the next swap must not come too soon: ten times the last roll above End, at least 2^20.
func (h *Head) raiseCeiling() {
	room := max(minHeadroom, 10*min(h.LastRoll, maxOffset/20))
	h.Ceiling = max(h.Ceiling, min(h.End, maxOffset-room)+room)
}

// AddEpoch puts an entry into the epoch history, or corrects the one of the same epoch. The swap leaves out epochs without offsets,
// so entries may be added in any order.
func (h *Head) AddEpoch(e EpochStart) {
	i, found := slices.BinarySearchFunc(h.Epochs, e.Epoch, func(a EpochStart, epoch int32) int { return cmp.Compare(a.Epoch, epoch) })
	if !found {
		h.Epochs = slices.Insert(h.Epochs, i, e)
		return
	}
	if e.Owner == "" {
		e.Owner = h.Epochs[i].Owner
	}
	h.Epochs[i] = e
}

// trimEpochs leaves out epochs that have no offset at or above Start. The last one always stays.
func (h *Head) trimEpochs() {
	for i := len(h.Epochs) - 2; i >= 0; i-- {
		if next := h.Epochs[i+1].Start; h.Epochs[i].Start >= next || next <= h.Start {
			h.Epochs = slices.Delete(h.Epochs, i, i+1)
		}
	}
}

// EpochOf returns the epoch that offset was written in, -1 when the history doesn't know.
func (h *Head) EpochOf(offset int64) int32 {
	for i := len(h.Epochs) - 1; i >= 0; i-- {
		if h.Epochs[i].Start <= offset {
			return h.Epochs[i].Epoch
		}
	}
	return -1
}
