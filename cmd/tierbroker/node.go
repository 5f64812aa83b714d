package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/broker"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/config"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/wal"
)

const (
	indexCacheBytes    = 16 << 20
	indexMemTableBytes = 8 << 20
	// queuedBytes may wait for the disk before producers wait; more than one
	// largest request.
	queuedBytes = 128 << 20
	chunkBytes  = 4 << 20
	// swapDelay bounds how long data objects of a busy partition wait for a swap that names them all.
	swapDelay = 20 * time.Second
	// stopPatience bounds each step of an orderly end.
	stopPatience = 10 * time.Second
)

// node is one incarnation of this broker: everything that dies with its lease.
type node struct {
	d           *daemon
	incarnation string
	since       int64 // when it began, ms

	session *cluster.Session
	record  cluster.Broker // as registered
	// controller is nil without the role.
	controller *controller.Controller
	archive    *tier.Archive
	cache      *cache.Cache
	set        *partition.Set
	losses     *lossLog
	broker     *broker.Broker

	work   *errgroup.Group
	run    context.Context // ends with the incarnation, or when something of it fails
	cancel context.CancelFunc
	once   sync.Once
	err    error
}

// startNode registers a new incarnation and opens its partitions. On failure it
// undoes what it did.
func (d *daemon) startNode(ctx context.Context) (*node, error) {
	n := &node{d: d, incarnation: cluster.NewID(), since: nowMs()}
	base, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.work, n.run = errgroup.WithContext(base)
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) start(ctx context.Context) error {
	c := n.d.config
	if c.HasRole(config.RoleBroker) {
		if err := n.openStorage(ctx); err != nil {
			return err
		}
		if err := n.set.Settle(n.d.cluster.Image()); err != nil {
			return fmt.Errorf("open the commit log: %w", err)
		}
	}
	if err := n.register(ctx); err != nil {
		return notJoined(err)
	}
	if c.HasRole(config.RoleController) {
		if err := n.announce(ctx); err != nil {
			return err
		}
		ctl, err := controller.New(controller.Options{Client: n.d.cluster, Session: n.session, Broker: c.BrokerID,
			OnEvent: controllerEvent(n.d.log), Catalog: catalogKeeper{n.d}, Loads: n.d.knownLoads})
		if err != nil {
			return err
		}
		n.controller = ctl
		n.work.Go(func() error { return ctl.Run(n.run) })
	}
	if n.set == nil {
		return nil
	}
	n.work.Go(func() error { return n.follow(n.run) })
	n.work.Go(func() error { n.reportLoads(n.run); return nil })
	return n.startBroker()
}

// openStorage opens commit log, index, cache and archive; partitions follow when
// the controller assigns them.
func (n *node) openStorage(ctx context.Context) error {
	c, dir := n.d.config, n.d.dir.path
	n.cache = cache.New(cache.Options{Bucket: n.d.bucket, Bytes: int64(c.CacheBytes), ChunkBytes: chunkBytes, Workers: c.ColdWorkers})
	meta := n.d.cluster.Image().Meta()
	n.archive = tier.New(tier.Options{Heads: n.d.bucket, Cache: n.cache, ClusterID: meta.ClusterID, ClusterIncarnation: meta.Incarnation})
	used, err := folderBytes(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	_, free, err := diskSpace(dir)
	if err != nil {
		return err
	}
	n.losses = newLossLog(n.d.log, lossQuiet)
	pause := min(time.Minute, max(time.Second, c.SweepDelay/4))
	n.set, err = n.openSet(ctx, partition.SetOptions{
		Dir: dir,
		Log: segment.Options{FileBytes: int64(c.SegmentFileBytes), SyncInterval: c.SyncInterval, MaxQueuedBytes: queuedBytes,
			MinFree: int64(c.DiskMinFree)},
		Index:       index.Options{CacheBytes: indexCacheBytes, MemTableBytes: indexMemTableBytes},
		Archive:     n.archive,
		Cluster:     n.d.cluster,
		Broker:      c.BrokerID,
		Incarnation: n.incarnation,
		BootID:      bootID(),
		Now:         nowMs,
		OnEvent:     partitionEvent(n.d.log, n.losses),
		WAL: &wal.Options{Bucket: n.d.bucket, Stream: wal.StreamID{Broker: c.BrokerID, Incarnation: n.incarnation},
			ClusterID: meta.ClusterID, ClusterIncarnation: meta.Incarnation, Now: nowMs},
		StreamInterval: c.UploadInterval,
		DiskBudget:     diskBudget(c, used, free), RollWorkers: c.RollWorkers, ProducerExpiry: c.ProducerExpiry,
		MaintainInterval: pause, SweepDelay: c.SweepDelay, SweepInterval: min(6*time.Hour, 6*c.SweepDelay), SwapDelay: swapDelay,
	})
	if err != nil {
		return fmt.Errorf("open the commit log: %w", err)
	}
	n.report(n.set.Recovered())
	return nil
}

// report tells what opening found, as far as an operator should know.
func (n *node) report(r partition.Recovery) {
	for _, x := range r.Corrupt {
		n.d.log.Warn("the commit log is damaged; the partition is repaired from the bucket as far as that covers it",
			zap.String("file", x.File), zap.Uint64("position", x.Position), zap.Stringer("id", x.ID), zap.String("reason", x.Reason))
	}
	if r.Torn > 0 {
		n.d.log.Info("cut an unfinished write off the commit log", zap.Int64("bytes", r.Torn))
	}
	n.d.log.Debug("commit log opened", zap.Int("frames", r.Frames), zap.Int("partitions", r.Partitions),
		zap.Bool("index_rebuilt", r.Rebuilt), zap.Bool("machine_restarted", r.Rebooted))
}

const (
	leaseMargin = 5 * time.Second        // beyond the lease of another run, until it counts as alive
	leaseRetry  = 250 * time.Millisecond // between two tries to register
)

// register takes a lease and, for a broker, makes it known.
func (n *node) register(ctx context.Context) error {
	c := n.d.config
	var err error
	if !c.HasRole(config.RoleBroker) {
		n.session, err = n.d.cluster.NewSession(ctx, c.LeaseTTL)
		return err
	}
	b := cluster.Broker{
		ID: c.BrokerID, Incarnation: n.incarnation, Identity: n.d.dir.identity.DirectoryID, Host: n.d.host, Port: n.d.port,
		AdminURL: n.d.adminURL, PeerURL: n.d.peers.url, Rack: c.Rack, Labels: c.Labels, Roles: c.Roles, Version: version, StartedAt: nowMs(),
	}
	// A broker that comes back with an empty disk is another to the cluster until its last run's lease has ended. An
	// etcd in this process renews that lease when it starts, so ending here and starting again would go on for ever.
	patience := time.NewTimer(c.LeaseTTL + leaseMargin)
	defer patience.Stop()
	for waiting := false; ; waiting = true {
		n.record = b
		n.session, err = n.d.cluster.Register(ctx, b, c.LeaseTTL)
		if !errors.Is(err, cluster.ErrBrokerIDInUse) {
			return err
		}
		if !waiting {
			n.d.log.Warn("another broker has this id, or this one had it and lost its data directory: waiting for its lease to end", zap.Error(err))
		}
		select {
		case <-patience.C:
			return mistake("can't join the cluster: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseRetry):
		}
	}
}

// announce makes this controller known, before it can lead.
func (n *node) announce(ctx context.Context) error {
	return notJoined(n.d.cluster.AnnounceController(ctx, n.session, cluster.ControllerNode{ID: n.d.config.BrokerID, Incarnation: n.incarnation,
		PeerURL: n.d.peers.url, AdminURL: n.d.adminURL, Version: version, StartedAt: nowMs()}))
}

// notJoined marks an error that passes when etcd answers again.
func notJoined(err error) error {
	if errors.Is(err, cluster.ErrUnavailable) {
		return fmt.Errorf("%w: %w", errNotJoined, err)
	}
	return err
}

// follow hands every image to the partitions.
func (n *node) follow(ctx context.Context) error {
	image := n.d.cluster.Image()
	for {
		n.set.Apply(image)
		next, err := n.d.cluster.Wait(ctx, image.Revision())
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("follow the cluster state: %w", err)
		}
		image = next
	}
}

func (n *node) startBroker() error {
	c := n.d.config
	var err error
	n.broker, err = broker.New(broker.Options{
		ID: c.BrokerID, Partitions: broker.Local(n.set), Cluster: n.d.cluster, Admin: n.d.cluster, Metrics: n.d.counters,
		Log: n.d.log, Disk: func() (int64, int64, error) { return diskSpace(n.d.dir.path) }, DataDir: n.d.dir.path,
		InternalDurability: internalDurability(c),
		LeaseValid:         func() bool { return n.session.ValidFor(time.Now()) > 0 },
		FetchMaxBytes:      int32(c.FetchMaxBytes), FetchSessions: fetchSessions(c), ColdWorkers: c.ColdWorkers,
	})
	return err
}

// internalDurability is that of internal topics: where other brokers may take them over, what a coordinator has confirmed
// must not be lost with its machine.
func internalDurability(c *config.Config) string {
	if len(c.EtcdEndpoints) > 0 || c.EtcdListen != "" {
		return cluster.Object.String()
	}
	return ""
}

// fetchSessions maps the setting, where 0 means none, to the broker's option.
func fetchSessions(c *config.Config) int {
	if c.FetchSessions == 0 {
		return -1
	}
	return c.FetchSessions
}

// close ends the incarnation: no request is being handled any more.
func (n *node) close() error {
	n.once.Do(func() {
		if n.broker != nil {
			n.broker.Close()
		}
		if n.set != nil {
			ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
			n.err = errors.Join(n.err, wrapped("close the commit log", n.set.Close(ctx)))
			cancel()
			n.losses.close()
		}
		n.cancel()
		if err := n.work.Wait(); !errors.Is(err, cluster.ErrSessionLost) {
			n.err = errors.Join(n.err, err)
		}
		if n.session != nil {
			n.err = errors.Join(n.err, wrapped("end the lease", n.session.Close()))
		}
		if n.archive != nil {
			n.err = errors.Join(n.err, n.archive.Close())
		}
		if n.cache != nil {
			n.err = errors.Join(n.err, n.cache.Close())
		}
	})
	return n.err
}

func wrapped(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// diskSpace returns the size of the file system and what is free for us.
func diskSpace(path string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("measure the disk of %s: %w", path, err)
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}

func nowMs() int64 { return time.Now().UnixMilli() }
