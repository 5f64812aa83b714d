package tier

import (
	"sort"
	"strings"

	"github.com/tierbroker/tierbroker/frame"
)

// Kind says where an extent's batches are.
type Kind string

// Kinds of extents.
const (
	KindData Kind = "data" // in a data object
	KindWAL  Kind = "wal"  // in a WAL object, which holds other partitions too
	KindVoid Kind = "void" // nowhere: these offsets were never assigned
)

// Extent is one contiguous range of offsets. Times are milliseconds, -1 when unknown.
type Extent struct {
	Start         int64  `json:"start"` // [Start, End)
	End           int64  `json:"end"`
	Kind          Kind   `json:"kind"`
	Key           string `json:"object,omitempty"` // full key; in JSON without the partition's prefix
	Size          int64  `json:"size,omitempty"`   // of the object
	IndexOff      int64  `json:"index,omitempty"`  // data: where the sections begin that a reader needs
	FooterOff     int64  `json:"footer,omitempty"` // data: where all sections begin
	Off           int64  `json:"off,omitempty"`    // wal: where this partition's part begins
	Len           int64  `json:"len,omitempty"`    // wal: its length
	CRC           uint32 `json:"crc,omitempty"`    // wal: CRC32C of [Off, Off+Len)
	MaxTimestamp  int64  `json:"maxTimestamp"`
	RunningMax    int64  `json:"runningMax"` // largest MaxTimestamp of this and all earlier extents, also of those that are gone
	MaxAppendTime int64  `json:"maxAppendTime"`
	RetentionTime int64  `json:"retentionTime"` // see RetentionTime
	Bytes         int64  `json:"bytes"`         // of the batches
	Records       int64  `json:"records"`
	Epoch         int32  `json:"epoch"` // of the owner who made it
	Flags         uint32 `json:"flags,omitempty"`
}

// VoidExtent returns an extent for offsets that were given up.
func VoidExtent(start, end int64, epoch int32) Extent {
	return Extent{Start: start, End: end, Kind: KindVoid, MaxTimestamp: -1, RunningMax: -1, MaxAppendTime: -1, RetentionTime: -1, Epoch: epoch}
}

// PageRef is a page that holds older extents, or other pages.
type PageRef struct {
	Key           string `json:"page"` // full key; in JSON without the partition's prefix
	Level         int    `json:"level,omitempty"`
	Start         int64  `json:"start"`
	End           int64  `json:"end"`
	Size          int64  `json:"size"`  // of the page itself
	Count         int64  `json:"count"` // extents below it
	MaxTimestamp  int64  `json:"maxTimestamp"`
	RunningMax    int64  `json:"runningMax"`
	RetentionTime int64  `json:"retentionTime"`
	Bytes         int64  `json:"bytes"`
	Records       int64  `json:"records"`
}

// EpochStart is an entry of the epoch history: from Start on, batches carry this epoch or a later one.
type EpochStart struct {
	Epoch int32  `json:"epoch"`
	Start int64  `json:"start"`
	Owner string `json:"owner,omitempty"` // incarnation of the broker; empty when unknown
}

// PendingStream is a WAL stream that may hold batches at or above the head's End.
type PendingStream struct {
	Broker      int32  `json:"broker"`
	Incarnation string `json:"incarnation"`
	Epoch       int32  `json:"epoch"`
	From        int64  `json:"from"` // first number that may matter
}

// Dropped is an object that the head doesn't need any more. A page stands for everything below it too.
type Dropped struct {
	Key   string `json:"object"` // full key; in JSON without the partition's prefix
	Page  bool   `json:"page,omitempty"`
	Level int    `json:"level,omitempty"` // of a page
	Time  int64  `json:"time"`            // milliseconds, when it was dropped
	Size  int64  `json:"size,omitempty"`
}

// nodes and extents are searched in the same way: both are in the order of their offsets.
func searchExtents(es []Extent, offset int64) int {
	return sort.Search(len(es), func(i int) bool { return es[i].End > offset })
}

func searchPages(ps []PageRef, offset int64) int {
	return sort.Search(len(ps), func(i int) bool { return ps[i].End > offset })
}

// shorten and lengthen take the partition's prefix off a key and put it back: it is the same in thousands of extents.
func shorten(key, prefix string) string {
	if rest, ok := strings.CutPrefix(key, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
		return rest
	}
	return key
}

func lengthen(key, prefix string) string {
	if key == "" || strings.Contains(key, "/") {
		return key
	}
	return prefix + key
}

func shortExtents(id frame.PartitionID, es []Extent) []Extent {
	prefix, out := DataPrefix(id), make([]Extent, len(es))
	for i, e := range es {
		e.Key = shorten(e.Key, prefix)
		out[i] = e
	}
	return out
}

func longExtents(id frame.PartitionID, es []Extent) {
	prefix := DataPrefix(id)
	for i := range es {
		es[i].Key = lengthen(es[i].Key, prefix)
	}
}

func shortPages(id frame.PartitionID, ps []PageRef) []PageRef {
	prefix, out := PagePrefix(id), make([]PageRef, len(ps))
	for i, p := range ps {
		p.Key = shorten(p.Key, prefix)
		out[i] = p
	}
	return out
}

func longPages(id frame.PartitionID, ps []PageRef) {
	prefix := PagePrefix(id)
	for i := range ps {
		ps[i].Key = lengthen(ps[i].Key, prefix)
	}
}

// checkExtents checks that extents are sound and follow each other without a hole. It returns where they end.
func checkExtents(part string, es []Extent, start int64) (int64, error) {
	for i := range es {
		e := &es[i]
		if start >= 0 && e.Start != start {
			return 0, corrupt(part, "extent %d begins at %d, the one before ends at %d", i, e.Start, start)
		}
		if e.Start < 0 || e.End <= e.Start || e.End > maxOffset || e.Bytes < 0 || e.Records < 0 || e.Epoch < 0 {
			return 0, corrupt(part, "extent %d [%d, %d) has impossible numbers", i, e.Start, e.End)
		}
		if e.RunningMax < e.MaxTimestamp || i > 0 && e.RunningMax < es[i-1].RunningMax {
			return 0, corrupt(part, "running maximum falls at extent %d", i)
		}
		if e.Kind == KindData && (e.Key == "" || e.Size > MaxObjectSize || e.FooterOff < int64(len(headMagic)) || e.IndexOff < e.FooterOff || e.IndexOff > e.Size-trailerLen) {
			return 0, corrupt(part, "extent %d [%d, %d) has a wrong object", i, e.Start, e.End)
		}
		if e.Kind == KindWAL && !e.checkWAL() {
			return 0, corrupt(part, "extent %d [%d, %d) has a wrong part of a WAL object", i, e.Start, e.End)
		}
		start = e.End
	}
	return start, nil
}

// checkPages is checkExtents for pages. Levels never rise from older to newer ones.
func checkPages(part string, ps []PageRef, start int64, maxLevel int) (int64, error) {
	for i := range ps {
		p := &ps[i]
		if start >= 0 && p.Start != start {
			return 0, corrupt(part, "page %d begins at %d, the one before ends at %d", i, p.Start, start)
		}
		if p.Key == "" || p.Start < 0 || p.End <= p.Start || p.End > maxOffset || p.Size < 0 || p.Count <= 0 || p.Bytes < 0 || p.Level < 0 || p.Level > maxLevel {
			return 0, corrupt(part, "page %d [%d, %d) has impossible numbers", i, p.Start, p.End)
		}
		if p.RunningMax < p.MaxTimestamp || i > 0 && p.RunningMax < ps[i-1].RunningMax {
			return 0, corrupt(part, "running maximum falls at page %d", i)
		}
		start, maxLevel = p.End, p.Level
	}
	return start, nil
}
