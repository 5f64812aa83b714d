package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/config"
)

// drainLook is the least time between two looks at the whole of the assignments.
const drainLook = 50 * time.Millisecond

// drain asks the controller to move this broker's partitions away before it stops,
// and waits until they are gone, or nobody is left who could take them, or the
// operator's patience ends. What is still here then is served again after a restart,
// or by others when the lease has ended.
func (d *daemon) drain(n *node) {
	limit := d.config.ShutdownDrain
	if !d.config.HasRole(config.RoleBroker) || limit == 0 || mayStop(d.cluster.Image(), d.config.BrokerID) != "" {
		return
	}
	ctx, cancel := context.WithTimeout(n.run, limit)
	defer cancel()
	n.record.Draining = true
	n.set.LeaveBy(time.Now().Add(limit))
	if err := n.session.Update(ctx, n.record); err != nil {
		d.log.Warn("partitions are not moved away before stopping", zap.Error(err))
		return
	}
	d.log.Info("moving partitions to other brokers before stopping", zap.Duration("limit", limit))
	began := time.Now()
	img := d.cluster.Image()
	for {
		why := mayStop(img, d.config.BrokerID)
		if why != "" {
			d.log.Info(why, zap.Duration("took", time.Since(began).Round(time.Millisecond)))
			return
		}
		next, err := d.nextImage(ctx, n, img.Revision())
		if err != nil {
			d.log.Warn("stopping with partitions that were not moved away", zap.Int("partitions", owned(d.cluster.Image(), d.config.BrokerID)), zap.Error(err))
			return
		}
		img = next
	}
}

// nextImage waits for a newer image, a moment at least, or for the end of the lease.
func (d *daemon) nextImage(ctx context.Context, n *node, after int64) (*cluster.Image, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	look := time.NewTimer(drainLook)
	defer look.Stop()
	select {
	case <-look.C:
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-n.session.Done():
			cancel(errLeaseLost)
		case <-ctx.Done():
		}
	}()
	img, err := d.cluster.Wait(ctx, after)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	<-stopped
	return img, err
}

// mayStop says why a broker need not wait any longer, "" when it should.
func mayStop(img *cluster.Image, id int32) string {
	takers := 0
	for _, b := range img.Brokers() {
		if b.ID != id && !b.Draining {
			takers++
		}
	}
	switch {
	case owned(img, id) == 0:
		return "no partition is left here"
	case takers == 0:
		return "no other broker is left to take partitions"
	case img.ControllerID() == cluster.NoBroker:
		return "there is no controller that moves partitions"
	}
	return ""
}

// owned counts the partitions that an image gives to a broker.
func owned(img *cluster.Image, id int32) int {
	n := 0
	for _, a := range img.Assignments() {
		if a.Owner == id && a.State != cluster.Unassigned && a.State != cluster.Deleted {
			n++
		}
	}
	return n
}
