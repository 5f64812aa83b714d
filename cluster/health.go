package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// How an embedded etcd is looked after. Compaction is etcd's own, every five
// minutes; the database file gives space back only when it is defragmented.
const (
	maintainEvery   = time.Minute
	defragFrom      = 64 << 20 // bytes of the file below which nothing is done
	defragFreeShare = 0.5      // share of the file that must be free
	urgentShare     = 0.8      // share of the quota from which compaction is forced
)

// Health is the state of the cluster store as this node sees it.
type Health struct {
	Embedded bool
	Revision int64  // of the image
	Lagging  error  // why the image is not current, nil when it is
	Version  string // of etcd
	DBBytes  int64  // size of the database file
	UsedBytes,
	QuotaBytes int64 // quota is 0 when unknown
	NoSpace bool  // etcd refuses writes until space is made
	Corrupt int   // keys that could not be decoded
	Err     error // why etcd did not answer
}

// Health asks etcd for its state, under the request timeout.
func (c *Client) Health(ctx context.Context) Health {
	img := c.Image()
	c.mu.Lock()
	h := Health{Embedded: c.embedded != nil, Revision: img.revision, Lagging: c.lagging, Corrupt: len(img.corrupt)}
	c.mu.Unlock()
	s, err := c.status(ctx)
	if err != nil {
		h.Err = err
		return h
	}
	h.Version, h.DBBytes, h.UsedBytes, h.QuotaBytes = s.Version, s.DbSize, s.DbSizeInUse, s.DbSizeQuota
	h.NoSpace = noSpace(s)
	if s.Leader == 0 && h.Lagging == nil {
		// The watch of a member in this process doesn't break when the member is cut off from its quorum.
		h.Lagging = fmt.Errorf("%w: the member of etcd that it follows has no leader", ErrUnavailable)
	}
	return h
}

func noSpace(s *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(s.Errors, func(e string) bool {
		return strings.Contains(e, pb.AlarmType_NOSPACE.String())
	})
}

// status asks one member: the one inside, or the first of the endpoints that answers.
func (c *Client) status(ctx context.Context) (s *clientv3.StatusResponse, err error) {
	endpoints := c.o.Endpoints
	if len(endpoints) == 0 {
		endpoints = []string{""} // the in-process client knows one member only
	}
	for _, endpoint := range endpoints {
		err = c.do(ctx, "etcd status", func(ctx context.Context) (err error) {
			s, err = c.etcd.Status(ctx, endpoint)
			return err
		})
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

// maintain keeps an embedded etcd small until ctx ends.
func (c *Client) maintain(ctx context.Context) {
	for {
		// A fault shows in Health and is tried again: there is nobody to tell here.
		if err := c.maintainOnce(ctx); err != nil && ctx.Err() != nil {
			return
		}
		if sleep(ctx, maintainEvery) != nil {
			return
		}
	}
}

// maintainOnce compacts when the quota comes near, defragments when much of the
// file is free, and lifts the alarm when there is room again. A file that has grown,
// or was written anew, gets its disk space.
func (c *Client) maintainOnce(ctx context.Context) error {
	defer c.embedded.reserve()
	s, err := c.status(ctx)
	if err != nil {
		return err
	}
	alarmed := noSpace(s)
	if alarmed || s.DbSizeQuota > 0 && float64(s.DbSizeInUse) > urgentShare*float64(s.DbSizeQuota) {
		if err := c.compact(ctx); err != nil {
			return err
		}
		if s, err = c.status(ctx); err != nil {
			return err
		}
	}
	if alarmed || s.DbSize > defragFrom && float64(s.DbSize-s.DbSizeInUse) > defragFreeShare*float64(s.DbSize) {
		if err := c.defragment(); err != nil {
			return err
		}
	}
	if alarmed {
		return c.disarm(ctx)
	}
	return nil
}

func (c *Client) compact(ctx context.Context) error {
	return c.doFor(ctx, time.Minute, "compact etcd", func(ctx context.Context) error {
		_, err := c.etcd.Compact(ctx, c.Image().revision, clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
}

// defragment rewrites the database file. It goes to the member itself: the
// in-process client can not ask for it.
func (c *Client) defragment() error {
	if err := c.embedded.etcd.Server.Backend().Defrag(); err != nil {
		return wrap("defragment etcd", err)
	}
	return nil
}

func (c *Client) disarm(ctx context.Context) error {
	return c.do(ctx, "lift etcd alarms", func(ctx context.Context) error {
		list, err := c.etcd.AlarmList(ctx)
		if err != nil {
			return err
		}
		for _, a := range list.Alarms {
			if _, err := c.etcd.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
				return err
			}
		}
		return nil
	})
}
