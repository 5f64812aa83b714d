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

// do makes one request to etcd under the request timeout. Close ends requests and
// waits for them, since an embedded member must not be asked once it is stopped.
func (c *Client) do(ctx context.Context, verb string, request func(ctx context.Context) error) error {
	return c.doFor(ctx, c.o.Timeout, verb, request)
}

func (c *Client) doFor(ctx context.Context, timeout time.Duration, verb string, request func(ctx context.Context) error) error {
	if !c.begin() {
		return fmt.Errorf("%s: %w", verb, ErrClosed)
	}
	defer c.wg.Done()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(c.run, cancel)()
	if err := request(ctx); err != nil {
		if c.run.Err() != nil {
			return fmt.Errorf("%s: %w", verb, ErrClosed)
		}
		return wrap(verb, err)
	}
	return nil
}

// txn runs one transaction. A failed request may have been committed or not.
func (c *Client) txn(ctx context.Context, verb string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (r *clientv3.TxnResponse, err error) {
	err = c.do(ctx, verb, func(ctx context.Context) (err error) {
		r, err = c.etcd.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	return r, err
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

// get reads one key.
func (c *Client) get(ctx context.Context, verb, key string) (r *clientv3.GetResponse, err error) {
	err = c.retry(ctx, func() error {
		return c.do(ctx, verb, func(ctx context.Context) (err error) {
			r, err = c.etcd.Get(ctx, key)
			return err
		})
	})
	return r, err
}

// revoke ends a lease; one that has ended already is fine.
func (c *Client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	if lease == clientv3.NoLease {
		return nil
	}
	return c.do(ctx, "revoke lease", func(ctx context.Context) error {
		_, err := c.etcd.Revoke(ctx, lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
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
