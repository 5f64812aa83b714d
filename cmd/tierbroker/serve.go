package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/broker"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// errLeaseLost ends an incarnation, not the process; errNotJoined keeps one from
// beginning while etcd doesn't answer.
var (
	errLeaseLost = errors.New("the lease in etcd has ended")
	errNotJoined = errors.New("etcd gives no lease")
)

// serve runs one incarnation after the other. A lease that ends (the process was
// paused, etcd was away for too long) costs the incarnation its partitions; the
// next one takes them up again with higher epochs.
func (d *daemon) serve(ctx context.Context) error {
	failed := make(chan error, 1)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-d.cluster.Stopped():
			end(d.cluster.Failure())
		case <-ctx.Done():
		}
	}()
	checking, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.health.watchCluster(checking)
	}()
	defer func() { stop(); <-watched }()
	if d.health.has("bucket") {
		go func() {
			if err := d.recheckBucket(checking); err != nil {
				failed <- err
			}
		}()
	}
	for {
		err := d.serveOnce(ctx, failed)
		d.began = time.Now()
		switch {
		case errors.Is(err, errLeaseLost):
			d.log.Warn("joining the cluster again", zap.Error(err))
		case errors.Is(err, errNotJoined) && ctx.Err() == nil:
			d.log.Warn("can't join the cluster; trying again", zap.Error(err))
			select {
			case <-time.After(etcdRetry):
			case <-ctx.Done():
			}
		default:
			return err
		}
	}
}

// standIn makes a broker without partitions answer until the next incarnation serves;
// the function that it returns ends it.
func (d *daemon) standIn() (end func(), err error) {
	b, err := broker.New(broker.Options{ID: d.config.BrokerID, Partitions: nowhere{}, Cluster: d.cluster, Admin: d.cluster,
		Metrics: d.counters, Log: d.log, DataDir: d.dir.path, FetchSessions: -1, ColdWorkers: 1})
	if err != nil {
		return nil, err
	}
	d.current.between.Store(b)
	return func() {
		d.current.between.Store(nil)
		b.Close()
	}, nil
}

func (d *daemon) serveOnce(ctx context.Context, failed <-chan error) error {
	n, err := d.startNode(ctx)
	if err != nil {
		return err
	}
	d.current.node.Store(n)
	if d.endStandIn != nil {
		d.endStandIn()
		d.endStandIn = nil
	} else if d.kafka != nil {
		n.takeUp(ctx)
	}
	if d.kafka != nil {
		d.kafka.Start()
	}
	d.log.Info("ready", d.readyFields()...)
	err = d.watch(ctx, n, failed)
	switch {
	case !errors.Is(err, errLeaseLost):
		// Connections go first, so that no request meets a closed commit log.
		err = errors.Join(err, d.closeKafka())
	case d.kafka != nil:
		end, serr := d.standIn()
		if serr != nil {
			return errors.Join(serr, n.close())
		}
		d.endStandIn = end
	}
	d.current.node.Store(nil)
	return errors.Join(err, n.close())
}

// readyFields say where to point clients.
func (d *daemon) readyFields() []zap.Field {
	fields := []zap.Field{}
	if d.kafka != nil {
		fields = append(fields, zap.String("kafka", d.kafka.Addrs()[0].String()), zap.String("advertised", hostPort(d.host, d.port)))
	}
	return append(fields, zap.String("admin", d.adminURL), zap.String("bucket", d.bucketName),
		zap.String("cluster", d.cluster.Image().ClusterID()), zap.String("version", version),
		zap.Duration("took", time.Since(d.began).Round(time.Millisecond)))
}

// watch returns when the incarnation has to end, with the reason.
func (d *daemon) watch(ctx context.Context, n *node, failed <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			d.stopping = time.Now()
			d.health.set("process", "stopping", true)
			d.drain(n)
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-n.session.Done():
			return errLeaseLost
		case <-n.run.Done():
			err := context.Cause(n.run)
			if errors.Is(err, cluster.ErrSessionLost) {
				return errLeaseLost
			}
			return err
		case <-tick.C:
			if n.set == nil || n.set.Err() == nil {
				// goes on
			} else if errors.Is(n.set.Err(), partition.ErrFencedRun) {
				return fmt.Errorf("%w: %w", errLeaseLost, n.set.Err())
			} else {
				return n.set.Err()
			}
			if d.kafka != nil {
				d.forgetTopics()
			}
			n.remeasure()
		}
	}
}

// forgetTopics drops the counters of topics that are gone.
func (d *daemon) forgetTopics() {
	image := d.cluster.Image()
	d.counters.Forget(func(id frame.TopicID) bool { return image.TopicByID(id) != nil })
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
