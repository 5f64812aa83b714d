package cluster

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// guard turns what etcd wants to end the process with into an error. etcd does so by way of its logger, in goroutines of
// its own, and counts on not coming back: they stay where they are, with all that they hold. So the member can't be
// closed any more; the process should end soon, in good order.
type guard struct {
	once   sync.Once
	failed chan struct{}
	err    error // set before failed is closed
}

func newGuard() *guard { return &guard{failed: make(chan struct{})} }

// watch returns a logger whose Fatal and Panic end up in the guard.
func (g *guard) watch(lg *zap.Logger) *zap.Logger {
	return lg.WithOptions(zap.WithFatalHook(g), zap.WithPanicHook(g))
}

// OnWrite implements zapcore.CheckWriteHook. It never returns.
func (g *guard) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(ce.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	g.fail(err)
	select {}
}

func (g *guard) fail(err error) {
	g.once.Do(func() {
		g.err = fmt.Errorf("%w: %w", ErrStopped, err)
		close(g.failed)
	})
}

// failure is why etcd has stopped, nil while it has not.
func (g *guard) failure() error {
	select {
	case <-g.failed:
		return g.err
	default:
		return nil
	}
}

// start is embed.StartEtcd, which it may not outlive.
func (g *guard) start(c *embed.Config) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil { // bbolt and some of etcd panic without a logger
				g.fail(fmt.Errorf("%v", v))
			}
		}()
		e, err := embed.StartEtcd(c)
		done <- result{e, err}
	}()
	select {
	case r := <-done:
		return r.etcd, r.err
	case <-g.failed:
		return nil, g.err
	}
}

// Stopped is closed when the etcd inside this process has stopped by itself; Failure says why. It is nil, and waits for
// ever, when etcd runs elsewhere.
func (c *Client) Stopped() <-chan struct{} {
	if c.embedded == nil {
		return nil
	}
	return c.embedded.guard.failed
}

// Failure is the ErrStopped of an etcd inside this process that has stopped by itself, nil otherwise. What is asked of it
// afterwards fails at once with ErrClosed.
func (c *Client) Failure() error {
	if c.embedded == nil {
		return nil
	}
	return c.embedded.guard.failure()
}

// endWithEtcd gives up what runs when etcd has stopped: nothing answers any more.
func (c *Client) endWithEtcd() {
	select {
	case <-c.embedded.guard.failed:
		c.cancel()
	case <-c.run.Done():
	}
}
