package tier

import (
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Options configure an Archive. The four buckets are the same store behind clients with different deadlines and concurrency; one
// may stand for all.
type Options struct {
	Heads bucket.Bucket // heads, small and conditional
	Roll  bucket.Bucket // uploads; nil: Heads
	Cold  bucket.Bucket // reads for consumers; nil: Heads
	Sweep bucket.Bucket // lists, deletes, merges; nil: Heads
	Cache *cache.Cache  // chunks of data objects, reads from Cold; nil: every read goes to the bucket (tools)

	ClusterID          string
	ClusterIncarnation string
	// PreviousIncarnation is set by a restore only: heads of this incarnation are taken over. All others are refused.
	PreviousIncarnation string

	BlockBytes    int   // of a block, unless one batch is larger; default 1 MiB
	InlineExtents int   // extents that stay in the head at least when others move into pages; default 256
	PageExtents   int   // extents of a page; default 1024
	PageFanout    int   // pages of a page of pages; default 32
	MetaBytes     int64 // memory for footers and pages; default 64 MiB
	ReadAhead     int64 // most bytes read ahead of a sequential reader; default 32 MiB, negative for none

	RetryMin time.Duration // first pause between attempts to learn a swap's outcome; default 50 ms, doubled each time
	RetryMax time.Duration // longest pause; default 5 s
}

func (o *Options) setDefaults() {
	for _, b := range []*bucket.Bucket{&o.Roll, &o.Cold, &o.Sweep} {
		if *b == nil {
			*b = o.Heads
		}
	}
	setDefault(&o.BlockBytes, 1<<20)
	setDefault(&o.InlineExtents, 256)
	setDefault(&o.PageExtents, 1024)
	setDefault(&o.PageFanout, 32)
	setDefault(&o.MetaBytes, 64<<20)
	setDefault(&o.ReadAhead, 32<<20)
	setDefault(&o.RetryMin, 50*time.Millisecond)
	setDefault(&o.RetryMax, 5*time.Second)
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Archive reads and changes the archives of partitions in a bucket. It may be used by many goroutines at once. It keeps no head;
// it remembers versions only.
type Archive struct {
	opts    Options
	meta    *metaCache
	readers readers

	mu       sync.Mutex
	seen     map[frame.PartitionID]seen
	discards map[frame.PartitionID][]discard
}

// seen is the newest head that the bucket has shown for a partition.
type seen struct {
	version   int64
	attempt   string
	tombstone bool
	tried     int64 // highest version that this Archive has tried to write; a put of it may still be under way
}

// New returns an Archive over the buckets of o. Close it.
func New(o Options) *Archive {
	o.setDefaults()
	return &Archive{
		opts: o, meta: newMetaCache(o.MetaBytes),
		readers:  readers{m: map[readerKey]reader{}},
		seen:     map[frame.PartitionID]seen{},
		discards: map[frame.PartitionID][]discard{},
	}
}

// Close ends what is being loaded. Calls under way fail. The cache and the buckets are the caller's to close.
func (a *Archive) Close() error {
	a.meta.close()
	return nil
}

// Forget drops what the Archive remembers of a partition that is served elsewhere from now on, or is destroyed.
func (a *Archive) Forget(id frame.PartitionID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, id)
	delete(a.discards, id)
}
