package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// farewell bounds the requests that give up a lease or a term.
const farewell = 2 * time.Second

// Session is a lease in etcd: as long as it lives, the keys bound to it do.
//
// Two questions are told apart. ValidFor answers whether the lease can have ended
// by now: what rests on it (sync and async writes) stops when the answer is zero,
// and goes on when etcd has renewed the lease after all. Done answers whether it
// has ended for certain: the incarnation is dead then.
type Session struct {
	c     *Client
	lease clientv3.LeaseID
	ttl   time.Duration
	start time.Time    // base of valid; carries the monotonic clock
	valid atomic.Int64 // ns after start until which the lease lives for certain

	done   chan struct{}
	lost   sync.Once
	cancel context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once
	err    error
}

// NewSession takes a lease and keeps it alive until Close. The ttl is rounded up
// to whole seconds; etcd may grant more, never less.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration) (*Session, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	s := &Session{c: c, start: time.Now(), done: make(chan struct{})}
	err := c.retry(ctx, func() error {
		return c.do(ctx, "grant lease", func(ctx context.Context) error {
			asked := time.Now()
			r, err := c.etcd.Grant(ctx, max(seconds, 1))
			if err != nil {
				return err
			}
			s.lease, s.ttl = r.ID, time.Duration(r.TTL)*time.Second
			s.renewed(asked, s.ttl)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		s.keepAlive(run)
	}()
	return s, nil
}

// renewed notes that etcd promised a time to live after the request was sent.
func (s *Session) renewed(asked time.Time, ttl time.Duration) {
	s.valid.Store(int64(asked.Sub(s.start) + ttl))
}

// keepAlive renews at a third of the time to live, and faster after a failure.
func (s *Session) keepAlive(ctx context.Context) {
	pause := s.ttl / 3
	for sleep(ctx, pause) == nil {
		err := s.c.doFor(ctx, s.ttl/3, "renew lease", func(ctx context.Context) error {
			asked := time.Now()
			r, err := s.c.etcd.KeepAliveOnce(ctx, s.lease)
			if err != nil {
				return err
			}
			s.renewed(asked, time.Duration(r.TTL)*time.Second)
			return nil
		})
		switch {
		case err == nil:
			pause = s.ttl / 3
		case errors.Is(err, ErrSessionLost):
			s.end()
			return
		default:
			pause = max(s.ttl/20, 20*time.Millisecond) // ValidFor tells; the lease may live on
		}
	}
}

// end marks the lease as gone for certain.
func (s *Session) end() {
	s.lost.Do(func() {
		s.valid.Store(0)
		close(s.done)
	})
}

// Lease returns etcd's id of the lease.
func (s *Session) Lease() int64 { return int64(s.lease) }

// TTL returns the time to live that etcd granted.
func (s *Session) TTL() time.Duration { return s.ttl }

// ValidFor returns how long after now the lease lives for certain; zero or less
// when it can have ended. now must carry Go's monotonic reading.
func (s *Session) ValidFor(now time.Time) time.Duration {
	return time.Duration(s.valid.Load()) - now.Sub(s.start)
}

// Done is closed when the lease has ended for certain, also by Close.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close revokes the lease: what is bound to it vanishes at once. When etcd does
// not answer, the lease ends by itself after its time to live.
func (s *Session) Close() error {
	s.closed.Do(func() {
		s.cancel()
		s.wg.Wait()
		gone := s.isDone()
		s.end()
		if gone {
			return
		}
		// Closing is part of a shutdown, which must not wait for a dead etcd.
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		s.err = s.c.revoke(ctx, s.lease)
	})
	return s.err
}

func (s *Session) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Register makes a broker known under a new lease. A living record of the same
// identity (an earlier run in the same data directory) is replaced at once and its
// lease revoked; one of another identity is ErrBrokerIDInUse. A broker that operators
// have removed and that owns nothing is ErrBrokerRemoved.
func (c *Client) Register(ctx context.Context, b Broker, ttl time.Duration) (*Session, error) {
	value, err := brokerValue(&b)
	if err != nil {
		return nil, err
	}
	if err := c.removed(ctx, b.ID); err != nil {
		return nil, err
	}
	s, err := c.NewSession(ctx, ttl)
	if err != nil {
		return nil, err
	}
	revision, err := c.register(ctx, s, &b, value)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c.seen(ctx, revision)
	return s, nil
}

// Lives reports whether a run of a broker is registered now, as etcd says it: not the image, which may be old. One whose lease has ended
// never registers again.
func (c *Client) Lives(ctx context.Context, broker int32, incarnation string) (bool, error) {
	r, err := c.get(ctx, "read broker", c.keys.broker(broker))
	if err != nil || len(r.Kvs) == 0 {
		return false, err
	}
	b, err := decodeBroker(broker, r.Kvs[0].Lease, r.Kvs[0].Value)
	return b.Incarnation == incarnation, err
}

func brokerValue(b *Broker) (string, error) {
	if b.ID < 0 || b.Incarnation == "" || len(b.Incarnation) > maxIncarnation {
		return "", fmt.Errorf("register broker %d: incarnation of %d bytes, want 1 to %d", b.ID, len(b.Incarnation), maxIncarnation)
	}
	return encodeRecord(b)
}

func (c *Client) register(ctx context.Context, s *Session, b *Broker, value string) (int64, error) {
	key := c.keys.broker(b.ID)
	expected := int64(0) // mod revision of the record to replace
	earlier := clientv3.LeaseID(clientv3.NoLease)
	for range maxAttempts {
		r, err := c.retryTxn(ctx, "register broker",
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", expected)},
			[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(s.lease))},
			[]clientv3.Op{clientv3.OpGet(key)})
		if err != nil {
			return 0, err
		}
		if r.Succeeded {
			// What else the earlier run holds (its candidacy) ends with its lease.
			return r.Header.Revision, c.retry(ctx, func() error { return c.revoke(ctx, earlier) })
		}
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			expected, earlier = 0, clientv3.NoLease
			continue
		}
		kv := kvs[0]
		if kv.Lease == int64(s.lease) { // committed by an attempt whose answer was lost
			return kv.ModRevision, c.retry(ctx, func() error { return c.revoke(ctx, earlier) })
		}
		old, err := decodeBroker(b.ID, kv.Lease, kv.Value)
		if err == nil && old.Identity != b.Identity {
			return 0, fmt.Errorf("%w: broker %d at %s:%d, started %s", ErrBrokerIDInUse, b.ID, old.Host, old.Port,
				time.UnixMilli(old.StartedAt).UTC().Format(time.RFC3339))
		}
		// The directory is locked by us, so the earlier run is dead. Its record is replaced
		// and not removed first: no image shows the broker as dead, and nothing fails over
		// from one that is back already.
		expected, earlier = kv.ModRevision, clientv3.LeaseID(kv.Lease)
	}
	return 0, fmt.Errorf("register broker %d: %w", b.ID, ErrConflict)
}

// Update replaces the record of the broker that was registered with this session
// (labels, draining). ErrSessionLost: the record is gone or another run's.
func (s *Session) Update(ctx context.Context, b Broker) error {
	value, err := brokerValue(&b)
	if err != nil {
		return err
	}
	key := s.c.keys.broker(b.ID)
	r, err := s.c.retryTxn(ctx, "update broker",
		[]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", s.lease)},
		[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(s.lease))}, nil)
	if err != nil {
		return err
	}
	if !r.Succeeded {
		return fmt.Errorf("update broker %d: %w", b.ID, ErrSessionLost)
	}
	s.c.seen(ctx, r.Header.Revision)
	return nil
}

// Term is the time during which a node is the controller.
type Term struct {
	c        *Client
	s        *Session
	key      string
	revision int64 // create revision of key
	broker   int32
	// dirty: a change of unknown outcome was left behind; see barrier.
	dirty atomic.Bool
}

// Campaign waits until this node leads. The term ends with the session, by Resign,
// or when somebody removes the key.
func (c *Client) Campaign(ctx context.Context, s *Session, broker int32) (*Term, error) {
	key := c.keys.candidate(int64(s.lease))
	r, err := c.retryTxn(ctx, "stand for controller",
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(key, strconv.Itoa(int(broker)), clientv3.WithLease(s.lease))},
		[]clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return nil, err
	}
	t := &Term{c: c, s: s, key: key, revision: r.Header.Revision, broker: broker}
	if !r.Succeeded {
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return nil, ErrSessionLost
		}
		t.revision = kvs[0].CreateRevision
	}
	for {
		// Taken before the image, so that no change between the two is missed.
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		img := c.Image()
		if t.Holds(img) {
			return t, nil
		}
		if img.revision >= t.revision && !t.stands(img) {
			return nil, fmt.Errorf("stand for controller: %w", ErrSessionLost)
		}
		select {
		case <-changed:
		case <-s.done:
			return nil, fmt.Errorf("stand for controller: %w", ErrSessionLost)
		case <-ctx.Done():
			rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			return nil, errors.Join(ctx.Err(), t.Resign(rctx))
		}
		if c.isClosed() {
			return nil, ErrClosed
		}
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.lagging, ErrClosed)
}

// Holds reports whether the node leads in an image.
func (t *Term) Holds(img *Image) bool {
	return len(img.candidates) > 0 && img.candidates[0].key == t.key && img.candidates[0].revision == t.revision
}

func (t *Term) stands(img *Image) bool {
	for _, c := range img.candidates {
		if c.key == t.key && c.revision == t.revision {
			return true
		}
	}
	return false
}

// Revision is the create revision that fences this term; later terms have higher ones.
func (t *Term) Revision() int64 { return t.revision }

// Done is closed when the session of the term has ended.
func (t *Term) Done() <-chan struct{} { return t.s.done }

// Resign gives the term up at once.
func (t *Term) Resign(ctx context.Context) error {
	_, err := t.c.retryTxn(ctx, "resign as controller", []clientv3.Cmp{t.guard()},
		[]clientv3.Op{clientv3.OpDelete(t.key)}, nil)
	return err
}

// guard is the comparison that every transaction of the controller makes.
func (t *Term) guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.revision)
}

// barrier makes sure that the image contains every change this term has made,
// also those whose answers were lost: it writes the election key again and waits
// for the image to show it.
func (t *Term) barrier(ctx context.Context) error {
	if !t.dirty.Load() {
		return nil
	}
	r, err := t.c.retryTxn(ctx, "controller barrier", []clientv3.Cmp{t.guard()},
		[]clientv3.Op{clientv3.OpPut(t.key, strconv.Itoa(int(t.broker)), clientv3.WithLease(t.s.lease))}, nil)
	if err != nil {
		return err
	}
	if !r.Succeeded {
		return ErrNotLeader
	}
	if _, err := t.c.Wait(ctx, r.Header.Revision-1); err != nil {
		return err
	}
	t.dirty.Store(false)
	return nil
}
