package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/broker"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/config"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

// daemon is what lives as long as the process, whatever becomes of its lease.
type daemon struct {
	config   *config.Config
	log      *zap.Logger
	metrics  *admin.Metrics
	counters *broker.Counters
	current  *current
	// endStandIn ends what answers clients between two incarnations; nil: nothing does.
	endStandIn func()
	health     *health
	began      time.Time
	stopping   time.Time // when a signal came

	dir         *dataDir
	kafka       *kafka.Server // nil without the broker role
	kafkaClosed bool
	admin       *admin.Server
	bucket      bucket.Bucket // metered
	bucketName  string        // its URL
	cluster     *cluster.Client
	rootID      string // cluster that the bucket names, when the data directory names none
	host        string // as clients are told
	port        int32
	adminURL    string
	peers       peers
	closers     []func() error // in the order of opening
}

// runDaemon runs until ctx ends or something fails for good.
func runDaemon(ctx context.Context, c *config.Config, log *zap.Logger) error {
	return newDaemon(c, log).run(ctx)
}

func newDaemon(c *config.Config, log *zap.Logger) *daemon {
	d := &daemon{config: c, log: log, metrics: admin.NewMetrics(version, nowMs()), counters: broker.NewCounters(), current: &current{}, began: time.Now()}
	d.health = &health{d: d, problems: map[string]admin.Problem{}}
	return d
}

func (d *daemon) run(ctx context.Context) error {
	err := d.open(ctx)
	if err == nil {
		err = d.serve(ctx)
	}
	if errors.Is(err, errSignal) || errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errSignal) {
		err = nil
	}
	if d.endStandIn != nil {
		err = errors.Join(err, d.closeKafka())
		d.endStandIn()
	}
	err = errors.Join(err, d.close())
	if d.cluster != nil && d.cluster.Failure() != nil {
		d.log.Debug("ended with etcd", zap.Error(err)) // all of it follows from that
		return d.etcdFailed(d.cluster.Failure())
	}
	if err == nil && !d.stopping.IsZero() {
		d.log.Info("stopped", zap.Duration("took", time.Since(d.stopping).Round(time.Millisecond)))
	}
	return err
}

func (d *daemon) onClose(f func() error) { d.closers = append(d.closers, f) }

func (d *daemon) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}

// open brings up everything but the partitions, in an order in which the
// operator's mistakes are found before anything is written.
func (d *daemon) open(ctx context.Context) error {
	var err error
	if d.dir, err = openDataDir(d.config.DataDir, d.config.BrokerID); err != nil {
		return err
	}
	d.onClose(d.dir.close)
	listener, err := admin.Listen(d.config.AdminListen)
	if err != nil {
		return portMistake("admin-listen", d.config.AdminListen, err)
	}
	d.onClose(func() error { return ignoreClosed(listener.Close()) })
	d.adminURL = d.config.AdminURL(listener.Addr())
	if err := d.openKafka(); err != nil {
		return err
	}
	if err := d.openPeers(); err != nil {
		return err
	}
	if err := d.openBucket(ctx); err != nil {
		return err
	}
	if err := d.joinCluster(ctx); err != nil {
		return err
	}
	d.servePeers()
	return d.openAdmin(listener)
}

func portMistake(setting, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return mistake("%s: %s is taken by another process", setting, addr)
	}
	return mistake("%s: %w", setting, err)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (d *daemon) openKafka() error {
	c := d.config
	var bound net.Addr
	if c.HasRole(config.RoleBroker) {
		server, err := kafka.NewServer(kafka.Options{
			Listeners: []kafka.Listener{{Name: "PLAINTEXT", Addr: c.KafkaListen}}, Handler: d.current,
			MaxRequestBytes: int32(c.MaxRequestBytes), MaxConns: c.MaxConnections, MaxInflightBytes: int64(c.MaxInflightBytes),
			IdleTimeout: c.IdleTimeout, OnEvent: kafkaEvent(d.log, d.metrics), OnRequest: d.counters.Request,
		})
		if err != nil {
			return portMistake("kafka-listen", c.KafkaListen, err)
		}
		d.kafka = server
		bound = server.Addrs()[0]
		d.onClose(d.closeKafka)
	}
	var err error
	d.host, d.port, err = c.AdvertiseHostPort(bound)
	if err != nil {
		return mistake("advertise: %w", err)
	}
	return nil
}

// closeKafka answers what is pending and closes the connections; a second call
// does nothing.
func (d *daemon) closeKafka() error {
	if d.kafka == nil || d.kafkaClosed {
		return nil
	}
	d.kafkaClosed = true
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	err := d.kafka.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		d.log.Warn("clients did not take their last answers in time", zap.Error(err))
		return nil
	}
	return err
}

// openBucket opens the bucket and checks it: now for a new data directory, in the
// background for a known one whose bucket doesn't answer.
func (d *daemon) openBucket(ctx context.Context) error {
	u, err := bucketURL(d.config)
	if err != nil {
		return err
	}
	d.bucketName = u.String()
	raw, err := openBucket(ctx, u)
	if err != nil {
		return err
	}
	if c, ok := raw.(io.Closer); ok {
		d.onClose(c.Close)
	}
	d.bucket = bucket.NewMeter(raw, d.health.observeBucket)
	if d.dir.fresh {
		return awaitBucket(ctx, bucketPatience, d.checkBucket)
	}
	quick, cancel := context.WithTimeout(ctx, bucketQuick)
	defer cancel()
	if err = d.checkBucket(quick); errors.Is(err, bucket.ErrProbe) {
		err = d.probeAgain(ctx, err)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if errors.As(err, new(userError)) || bucketMistake(err) {
		return awaitBucket(ctx, 0, func(context.Context) error { return err })
	}
	d.log.Warn("the bucket does not answer; starting without it", zap.Error(err))
	d.health.set("bucket", "does not answer: "+err.Error(), false)
	return nil
}

// probeAgain is for a bucket that was good enough at an earlier start: answers that are damaged on their way look like a store that lacks
// something, and a broker doesn't end because its bucket is unwell for a moment. It returns when the bucket is asked with another outcome, or
// when patience ends.
func (d *daemon) probeAgain(ctx context.Context, err error) error {
	d.log.Warn("the bucket fails a check that it has passed before; asking again", zap.Error(err))
	for deadline := time.Now().Add(bucketPatience); errors.Is(err, bucket.ErrProbe) && time.Now().Before(deadline); {
		select {
		case <-time.After(bucketRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		quick, cancel := context.WithTimeout(ctx, bucketQuick)
		err = d.checkBucket(quick)
		cancel()
	}
	return err
}

// checkBucket asks whose bucket it is and whether it keeps the promises on which
// the archive rests.
func (d *daemon) checkBucket(ctx context.Context) error {
	root, err := catalog.ReadRoot(ctx, d.bucket)
	if err != nil && !errors.Is(err, catalog.ErrNoRoot) {
		return err
	}
	found := ""
	if err == nil {
		found = root.ClusterID
	}
	if err := d.checkRoot(found); err != nil {
		return err
	}
	return bucket.Probe(ctx, d.bucket)
}

// checkRoot holds the bucket's cluster against the data directory's.
func (d *daemon) checkRoot(found string) error {
	own, name := d.dir.identity.ClusterID, d.bucketName
	switch {
	case own == found:
		return nil
	case own == "":
		// The cluster's own etcd proves it: one that runs elsewhere, a quorum that others
		// may have begun, or one that an earlier start has left behind before it could
		// write the identity.
		if _, err := os.Stat(d.etcdDir()); err == nil || len(d.config.EtcdEndpoints) > 0 || len(d.config.Controllers) > 1 {
			d.rootID = found
			return nil
		}
		return mistake("the bucket %s already holds cluster %s, and this data directory is new: start with that cluster's data directory, "+
			"or name another bucket or prefix", name, found)
	case found == "":
		return mistake("the bucket %s holds no cluster, but the data directory belongs to cluster %s: is it the right bucket?", name, own)
	}
	return mistake("the bucket %s belongs to cluster %s, the data directory to cluster %s: set another data-dir or bucket", name, found, own)
}

func (d *daemon) etcdDir() string { return filepath.Join(d.dir.path, "etcd") }

// recheckBucket runs until a bucket that did not answer at the start has been
// checked; a bucket that turns out to be the wrong one ends the process.
func (d *daemon) recheckBucket(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(bucketRecheck):
		}
		err := d.checkBucket(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			d.health.clear("bucket")
			d.log.Info("the bucket answers again")
			return nil
		case errors.As(err, new(userError)) || bucketMistake(err):
			return awaitBucket(ctx, 0, func(context.Context) error { return err })
		}
		d.health.set("bucket", "does not answer: "+err.Error(), false)
	}
}

// openCatalog makes or checks the bucket's root for this cluster.
func (d *daemon) openCatalog(ctx context.Context, create bool) (*catalog.Catalog, error) {
	meta := d.cluster.Image().Meta()
	c, err := catalog.Open(ctx, catalog.Options{Bucket: d.bucket, Images: d.cluster, ClusterID: meta.ClusterID,
		Incarnation: meta.Incarnation, Create: create, Node: fmt.Sprintf("the controller on node %d", d.config.BrokerID), Now: nowMs})
	if errors.Is(err, catalog.ErrOtherCluster) || errors.Is(err, catalog.ErrUnfinished) {
		return nil, userError{err}
	}
	return c, err
}

// catalogKeeper keeps the bucket's copy of topics and settings current while this
// node is the controller.
type catalogKeeper struct{ d *daemon }

// Run waits for a bucket that doesn't answer.
func (k catalogKeeper) Run(ctx context.Context) error {
	c, err := k.d.openCatalog(ctx, false)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func (d *daemon) openAdmin(l net.Listener) error {
	meta := d.cluster.Image().Meta()
	heads := tier.New(tier.Options{Heads: d.bucket, ClusterID: meta.ClusterID, ClusterIncarnation: meta.Incarnation}) // reads only
	d.onClose(heads.Close)
	o := admin.Options{
		Cluster: d.cluster, Operator: d.cluster, Heads: heads, Node: nodeInfo{d}, Loads: nodeInfo{d}, Health: d.health, Metrics: d.metrics, Config: d.config.Values(), Version: version, BrokerID: d.config.BrokerID,
		Bucket: d.bucketName, Now: nowMs, Loopback: isLoopback(l.Addr()), Pprof: d.config.Pprof,
		OnFault: func(err error) { d.log.Warn("admin server", zap.Error(err)) },
	}
	if d.kafka != nil {
		o.Partitions, o.Local = d.current, localInfo{d.current, d}
		d.metrics.SetTraffic(traffic{d.counters})
	}
	server, err := admin.Serve(l, o)
	if err != nil {
		return err
	}
	d.admin = server
	d.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	})
	return nil
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
