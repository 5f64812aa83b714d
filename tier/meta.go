package tier

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// metaCache keeps decoded footers and pages, which are immutable, within a number of bytes. One load per key is in flight at a
// time; it goes on when the reader that began it gives up, so that the reader's next try finds the result.
type metaCache struct {
	limit  int64
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	loads  sync.WaitGroup

	mu      sync.Mutex
	used    int64
	entries map[string]*list.Element
	order   *list.List // most recent first
	flights map[string]*flight
	closed  bool
}

type metaEntry struct {
	key   string
	value any
	cost  int64
}

type flight struct {
	done  chan struct{}
	value any
	err   error
}

var errClosed = errors.New("archive is closed")

func newMetaCache(limit int64) *metaCache {
	ctx, cancel := context.WithCancel(context.Background())
	return &metaCache{limit: limit, ctx: ctx, cancel: cancel, entries: map[string]*list.Element{}, order: list.New(), flights: map[string]*flight{}}
}

// get returns what is in memory.
func (m *metaCache) get(key string) (any, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil {
		m.order.MoveToFront(e)
		return e.Value.(*metaEntry).value, true
	}
	return nil, false
}

// loadMeta returns the value of key from memory, or from load, which also says how many bytes of memory it takes.
func loadMeta[T any](ctx context.Context, m *metaCache, key string, load func(context.Context) (T, int64, error)) (T, error) {
	var zero T
	if v, ok := m.get(key); ok {
		return v.(T), nil
	}
	f, err := m.fly(key, func(ctx context.Context) (any, int64, error) {
		v, cost, err := load(ctx)
		return v, cost, err
	})
	if err != nil {
		return zero, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return zero, fmt.Errorf("load %s: %w", key, context.Cause(ctx))
	}
	if f.err != nil {
		return zero, f.err
	}
	return f.value.(T), nil
}

// fly joins the load of key, or begins one.
func (m *metaCache) fly(key string, load func(context.Context) (any, int64, error)) (*flight, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if f := m.flights[key]; f != nil {
		return f, nil
	}
	f := &flight{done: make(chan struct{})}
	if e := m.entries[key]; e != nil {
		f.value = e.Value.(*metaEntry).value
		close(f.done)
		return f, nil
	}
	m.flights[key] = f
	m.loads.Add(1)
	go func() {
		defer m.loads.Done()
		ctx, cancel := context.WithTimeout(m.ctx, loadTimeout)
		defer cancel()
		var cost int64
		f.value, cost, f.err = load(ctx)
		m.land(key, f, cost)
	}()
	return f, nil
}

func (m *metaCache) land(key string, f *flight, cost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.flights, key)
	if f.err == nil && cost <= m.limit {
		m.entries[key] = m.order.PushFront(&metaEntry{key: key, value: f.value, cost: cost})
		m.used += cost
		for m.used > m.limit {
			m.remove(m.order.Back())
		}
	}
	close(f.done)
}

func (m *metaCache) remove(e *list.Element) {
	v := m.order.Remove(e).(*metaEntry)
	delete(m.entries, v.key)
	m.used -= v.cost
}

// drop forgets a key.
func (m *metaCache) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil {
		m.remove(e)
	}
}

// close ends all loads and waits for them.
func (m *metaCache) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.loads.Wait()
}

// gone makes a missing object an ErrGone: the head that named it is old.
func gone(err error, key string) error {
	if errors.Is(err, bucket.ErrNotFound) {
		return fmt.Errorf("%s: %w: %w", key, ErrGone, err)
	}
	return err
}
