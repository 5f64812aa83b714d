package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// loadPage is how many keys one request of a full load asks for.
const loadPage = 256

// errResync: the watch can not go on where it stopped.
var errResync = errors.New("watch fell behind compaction")

// load reads everything at one revision.
func (c *Client) load(ctx context.Context) (*Image, error) {
	var img *Image
	err := c.retry(ctx, func() (err error) {
		img, err = c.loadOnce(ctx)
		return err
	})
	return img, err
}

func (c *Client) loadOnce(ctx context.Context) (*Image, error) {
	b := newBuilder(c.o.Prefix, emptyImage(localLayers{broker: c.o.BrokerID, static: c.o.Static}))
	from, end := c.o.Prefix, clientv3.GetPrefixRangeEnd(c.o.Prefix)
	var revision int64
	for {
		var r *clientv3.GetResponse
		err := c.do(ctx, "load cluster state", func(ctx context.Context) (err error) {
			r, err = c.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(loadPage),
				clientv3.WithRev(revision), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
			return err
		})
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err) // begin again at a newer revision
		}
		if err != nil {
			return nil, err
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			b.put(kv)
		}
		if !r.More || len(r.Kvs) == 0 {
			return b.build(revision), nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// follow keeps the image current until ctx ends.
func (c *Client) follow(ctx context.Context) {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	pause := least
	for ctx.Err() == nil {
		before := c.Image().revision
		err := c.watch(ctx)
		if errors.Is(err, errResync) {
			err = c.resync(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if c.Image().revision > before {
			pause = least
		}
		if err != nil {
			c.setLagging(err)
		}
		if sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, most)
	}
}

// resync replaces the image by a full load.
func (c *Client) resync(ctx context.Context) error {
	img, err := c.load(ctx)
	if err != nil {
		return err
	}
	if old := c.Image(); img.revision < old.revision {
		// Only an etcd that lost its data goes back; an image never does.
		return fmt.Errorf("%w: etcd is at revision %d, this node has seen %d", ErrUnavailable, img.revision, old.revision)
	}
	c.publish(img)
	return nil
}

// watch applies events until the watch breaks.
func (c *Client) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := c.etcd.Watch(clientv3.WithRequireLeader(ctx), c.o.Prefix, clientv3.WithPrefix(),
		clientv3.WithRev(c.Image().revision+1), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	for r := range events {
		if r.CompactRevision > 0 || errors.Is(r.Err(), rpctypes.ErrCompacted) {
			return errResync
		}
		if err := r.Err(); err != nil {
			return wrap("watch cluster state", err)
		}
		if r.Created {
			c.setLagging(nil)
		}
		c.applyEvents(&r)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: watch ended", ErrUnavailable)
}

// applyEvents makes one image out of one response, which holds whole revisions.
func (c *Client) applyEvents(r *clientv3.WatchResponse) {
	base := c.Image()
	if len(r.Events) == 0 {
		return
	}
	b := newBuilder(c.o.Prefix, base)
	revision := base.revision
	for _, e := range r.Events {
		if e.Kv.ModRevision <= base.revision {
			continue // seen already: a watch that was renewed by the client library
		}
		revision = max(revision, e.Kv.ModRevision)
		if e.Type == clientv3.EventTypeDelete {
			b.del(e.Kv.Key)
		} else {
			b.put(e.Kv)
		}
	}
	if revision > base.revision {
		c.publish(b.build(revision))
	}
}
