package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierbroker/tierbroker/frame"
)

func topicID(u uuid.UUID) frame.TopicID { return frame.TopicID(u) }

// txn runs one transaction under the request timeout. A failed request may have
// been committed or not.
func (c *Client) txn(ctx context.Context, verb string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	r, err := c.etcd.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return nil, wrap(verb, err)
	}
	return r, nil
}

// retryTxn repeats a transaction while etcd is unavailable, until ctx ends. Only
// for transactions that do no harm when they were committed already.
func (c *Client) retryTxn(ctx context.Context, verb string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	var r *clientv3.TxnResponse
	err := c.retry(ctx, func() (err error) {
		r, err = c.txn(ctx, verb, cmps, then, otherwise)
		return err
	})
	return r, err
}

// retry repeats fn while it fails with ErrUnavailable, with growing pauses, until
// ctx or the request timeout ends.
func (c *Client) retry(ctx context.Context, fn func() error) error {
	deadline := time.Now().Add(c.o.Timeout)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := fn()
		if err == nil || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil || time.Now().Add(pause).After(deadline) {
			return err
		}
		if serr := sleep(ctx, pause); serr != nil {
			return err
		}
	}
}

// sleep waits for a pause or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get reads one key under the request timeout; nil when it does not exist.
func (c *Client) get(ctx context.Context, verb, key string) (*clientv3.GetResponse, error) {
	var r *clientv3.GetResponse
	err := c.retry(ctx, func() (err error) {
		tctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
		defer cancel()
		if r, err = c.etcd.Get(tctx, key); err != nil {
			return wrap(verb, err)
		}
		return nil
	})
	return r, err
}

// wrap tells faults that pass (ErrUnavailable) from a lease that ended and from
// those that stay.
func wrap(verb string, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%s: %w", verb, ErrSessionLost)
	}
	if passes(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, verb, err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func passes(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || clientv3.IsConnCanceled(err) {
		return true
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return true
	}
	s, ok := status.FromError(rpctypes.Error(err))
	var ee rpctypes.EtcdError
	code := codes.OK
	switch {
	case errors.As(err, &ee):
		code = ee.Code()
	case ok:
		code = s.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}
