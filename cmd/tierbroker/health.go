package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

const (
	// bucketSilence is how long the bucket may fail before that is a problem.
	bucketSilence = 10 * time.Second
	clusterCheck  = 15 * time.Second
)

// health collects what is wrong from those who know.
type health struct {
	d  *daemon
	mu sync.Mutex
	// problems by component, for what is found out once and not at each look.
	problems map[string]admin.Problem
	// failing since when, and why, without a bucket request that was answered.
	failing time.Time
	failure error
}

func (h *health) set(component, message string, unready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems[component] = admin.Problem{Component: component, Message: message, Unready: unready}
}

func (h *health) clear(component string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.problems, component)
}

func (h *health) has(component string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.problems[component]
	return ok
}

// observeBucket counts a bucket request and notes whether the bucket answers.
func (h *health) observeBucket(op bucket.Op, verb string, bytes int64, took time.Duration, err error) {
	h.d.metrics.ObserveBucket(op, verb, bytes, took, err)
	broken := errors.Is(err, bucket.ErrUnavailable) || errors.Is(err, bucket.ErrDenied) || errors.Is(err, bucket.ErrConfig)
	if err != nil && !broken {
		return // an answer, or a caller that gave up
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.failing, h.failure = time.Time{}, nil
	case h.failing.IsZero():
		h.failing, h.failure = time.Now(), err
	default:
		h.failure = err
	}
}

// Check returns the problems of this moment.
func (h *health) Check() []admin.Problem {
	list := h.noted()
	n := h.d.current.node.Load()
	if n == nil {
		return append(list, admin.Problem{Component: "process", Message: "starting, or joining the cluster again", Unready: true})
	}
	if n.set != nil {
		if wm := n.set.Log().Watermarks(); wm.Err != nil {
			list = append(list, admin.Problem{Component: "commitlog", Message: "refuses writes: " + wm.Err.Error(), Unready: true})
		}
		if err := n.set.Err(); err != nil {
			list = append(list, admin.Problem{Component: "commitlog", Message: err.Error(), Unready: true})
		}
		if used, budget := n.set.Log().DiskBytes(), n.set.DiskBudget(); used > budget {
			list = append(list, admin.Problem{Component: "commitlog",
				Message: fmt.Sprintf("uses %d bytes of its budget of %d: what the bucket doesn't have yet can't be freed", used, budget)})
		}
	}
	if n.session.ValidFor(time.Now()) <= 0 {
		list = append(list, admin.Problem{Component: "cluster", Message: "the lease in etcd may have ended", Unready: true})
	}
	return list
}

func (h *health) noted() []admin.Problem {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]admin.Problem, 0, len(h.problems)+1)
	for _, p := range h.problems {
		list = append(list, p)
	}
	_, told := h.problems["bucket"]
	if since := time.Since(h.failing); !told && !h.failing.IsZero() && since > bucketSilence {
		list = append(list, admin.Problem{Component: "bucket", Message: fmt.Sprintf("no request has succeeded for %s: %s", since.Round(time.Second), h.failure)})
	}
	return list
}

// watchCluster looks after the state of etcd until ctx ends.
func (h *health) watchCluster(ctx context.Context) {
	tick := time.NewTicker(clusterCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if message := clusterProblem(h.d.cluster.Health(ctx)); message != "" && ctx.Err() == nil {
			h.set("etcd", message, false)
		} else {
			h.clear("etcd")
		}
	}
}

func clusterProblem(s cluster.Health) string {
	switch {
	case s.Err != nil:
		return "etcd does not answer: " + s.Err.Error()
	case s.NoSpace:
		return fmt.Sprintf("etcd is full (%d of %d bytes) and takes no changes until it has made room", s.DBBytes, s.QuotaBytes)
	case s.Lagging != nil:
		return "this node does not follow etcd: " + s.Lagging.Error()
	case s.Corrupt > 0:
		return fmt.Sprintf("%d keys in etcd can't be decoded", s.Corrupt)
	}
	return ""
}
