package admin

import (
	"context"
	"errors"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/tier"
)

// Cluster gives the current picture of the cluster.
type Cluster interface {
	// Image never returns nil.
	Image() *cluster.Image
}

// Operator makes the changes that operators ask for; *cluster.Client is one. Calls return when the change is visible in Image.
type Operator interface {
	SetBrokerWish(ctx context.Context, broker int32, w cluster.BrokerWish) error
	SetMoves(ctx context.Context, moves []cluster.MoveWish) error
	CancelMoves(ctx context.Context, ids []frame.PartitionID) error
	// AlterBrokerConfig changes the dynamic settings of a broker, or of all for cluster.DefaultConfig.
	AlterBrokerConfig(ctx context.Context, broker int32, ops []cluster.ConfigOp, replace bool) error
}

// Node tells about the place of this process in the cluster. Each call returns false where there is nothing to tell.
type Node interface {
	Lease() (LeaseInfo, bool)
	// Controller returns what this node has done as the controller.
	Controller() (controller.Stats, bool)
	// Stream describes the WAL stream of this run.
	Stream() (partition.StreamStats, bool)
}

// LeaseInfo is the lease under which a node is in the cluster.
type LeaseInfo struct {
	Valid time.Duration // for which it certainly holds; negative: since when it may have ended
	TTL   time.Duration
	Since int64 // when it was taken, ms
}

// Heads reads heads of partitions in the bucket; *tier.Archive is one.
type Heads interface {
	Load(ctx context.Context, id frame.PartitionID) (*tier.Head, error)
}

// Partitions are the partitions of this broker.
type Partitions interface {
	// Stats calls yield for each partition here until it returns false, in no
	// particular order.
	Stats(yield func(partition.Stats) bool)
	// Roll brings everything durable of a partition into the bucket.
	Roll(ctx context.Context, id frame.PartitionID) error
	// Evict drops local copies of a partition that the bucket covers.
	Evict(ctx context.Context, id frame.PartitionID) error
}

// Local tells about the disk and the memory of this broker.
type Local interface {
	// Files lists the files of the commit log, oldest first.
	Files() []LogFile
	// Disk returns the commit log's use of the disk.
	Disk() DiskUsage
	// Cache returns the chunk cache's counters.
	Cache() CacheStats
	// Groups counts the consumer groups that this broker coordinates.
	Groups() GroupStats
	// GroupLag tells how far they are behind. It answers within a second, with what was known last if need be.
	GroupLag() GroupLag
	// Connections returns the number of open Kafka connections.
	Connections() int
}

// Health tells what an operator should know.
type Health interface {
	// Check returns what is wrong at this moment; no I/O.
	Check() []Problem
}

// LogFile is one file of the commit log.
type LogFile struct {
	Base    uint64 `json:"base"`  // position of its first byte
	End     uint64 `json:"end"`   // position behind its last frame
	Bytes   int64  `json:"bytes"` // on disk
	Active  bool   `json:"active"`
	Readers int    `json:"readers"`
}

// CacheStats are the counters of the chunk cache since the start, and its size.
type CacheStats struct {
	Hits      int64 `json:"hits"`
	Misses    int64 `json:"misses"`
	Evictions int64 `json:"evictions"`
	Bytes     int64 `json:"bytes"`    // held now
	Inflight  int64 `json:"inflight"` // requests under way
}

// GroupStats counts consumer groups; the totals run since the start.
type GroupStats struct {
	Groups     map[string]int `json:"groups"` // by state, in Kafka's words
	Members    int            `json:"members"`
	Offsets    int            `json:"offsets"` // committed
	Loading    int            `json:"loading"` // shards that can't answer yet
	Rebalances uint64         `json:"rebalances"`
	Expired    uint64         `json:"expired"`     // offsets
	BadRecords uint64         `json:"bad_records"` // that could not be read
}

// GroupLag says how far consumer groups are behind in topics.
type GroupLag struct {
	Pairs           []PairLag
	At              int64 // of the figures, ms; 0 when nothing is known yet
	Unlisted        int   // pairs that are not in Pairs
	UnlistedRecords int64 // how far those are behind
	Unknown         int   // partitions with a commit that this broker doesn't own, which nothing here counts
}

// PairLag is how far a group is behind in a topic, in offsets. The group's name is valid UTF-8.
type PairLag struct {
	Group, Topic string
	Records      int64 // not consumed yet
	Cold         int64 // of those: in the bucket only
	Lost         int64 // removed before they were consumed
}

// DiskUsage is the commit log's use of the disk, in bytes.
type DiskUsage struct {
	Used   int64 `json:"used_bytes"`
	Free   int64 `json:"free_bytes"`   // of the file system
	Budget int64 `json:"budget_bytes"` // 0 = none
}

// Problem is one thing that is wrong.
type Problem struct {
	Component string `json:"component"` // cluster, partitions, commitlog, bucket, process
	Message   string `json:"message"`   // one sentence
	// Unready means that clients had better go elsewhere until it is over.
	Unready bool `json:"unready"`
}

// Options of a Server. Fields without a comment to the contrary are required,
// except that a process without the broker role has no Partitions and no Local.
type Options struct {
	Cluster    Cluster
	Operator   Operator
	Heads      Heads // nil: what a forced move would lose isn't known here
	Node       Node  // nil: no metrics of lease, controller and WAL stream
	Loads      Loads // nil: rebalances look at labels and counts only
	Partitions Partitions
	Local      Local
	Health     Health
	Metrics    *Metrics
	// Config holds the settings of this process as text.
	Config map[string]string
	// Version of the program, BrokerID of this process, Bucket as the operator wrote it.
	Version  string
	BrokerID int32
	Bucket   string
	// Now is the wall clock in milliseconds.
	Now func() int64
	// Loopback is set when the server listens on a loopback address only.
	Loopback bool
	// Pprof serves Go's profiles.
	Pprof bool
	// OnFault is told of failures that no client sees. It must not block.
	OnFault func(err error)
}

func (o *Options) check() error {
	switch {
	case o.Cluster == nil, o.Operator == nil, o.Health == nil, o.Metrics == nil, o.Now == nil, o.OnFault == nil:
		return errors.New("admin: Cluster, Operator, Health, Metrics, Now and OnFault must be set")
	case (o.Partitions == nil) != (o.Local == nil):
		return errors.New("admin: Partitions and Local go together")
	}
	return nil
}
