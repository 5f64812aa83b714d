package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a bucket in memory, for tests and for mem:// URLs. Its ETags count up from 1, so traces of it are reproducible.
type Memory struct {
	mu      sync.RWMutex
	objects map[string]*memObject
	keys    []string // sorted
	puts    uint64
	now     func() time.Time
}

// memObject is never changed once it is in the map.
type memObject struct {
	body []byte
	info Info
}

// NewMemory returns an empty bucket.
func NewMemory() *Memory {
	return &Memory{objects: map[string]*memObject{}, now: time.Now}
}

// SetNow makes objects carry now() as their time instead of the wall clock's.
func (m *Memory) SetNow(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

func (m *Memory) find(ctx context.Context, verb, key string) (*memObject, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError(verb, key, ErrUnavailable, err)
	}
	m.mu.RLock()
	o := m.objects[key]
	m.mu.RUnlock()
	if o == nil {
		return nil, newError(verb, key, ErrNotFound, nil)
	}
	return o, nil
}

// Get implements Bucket.
func (m *Memory) Get(ctx context.Context, _ Op, key string, off, n int64, dst []byte) (int, Info, error) {
	if err := CheckGet(key, off, n, dst); err != nil {
		return 0, Info{}, err
	}
	o, err := m.find(ctx, "get", key)
	if err != nil {
		return 0, Info{}, err
	}
	if off+n > o.info.Size {
		return 0, o.info, rangeError(key, off, n, o.info.Size)
	}
	return copy(dst[:n], o.body[off:]), o.info, nil
}

// GetWhole implements Whole.
func (m *Memory) GetWhole(ctx context.Context, _ Op, key string, limit int64) ([]byte, Info, error) {
	if err := CheckKey(key); err != nil {
		return nil, Info{}, err
	}
	o, err := m.find(ctx, "get", key)
	if err != nil {
		return nil, Info{}, err
	}
	if o.info.Size > limit {
		return nil, o.info, sizeError(key, o.info.Size, limit)
	}
	return bytes.Clone(o.body), o.info, nil
}

// Put implements Bucket.
func (m *Memory) Put(ctx context.Context, _ Op, key string, body Body, cond Condition) (Info, error) {
	if err := CheckPut(key, body, cond); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, newError("put", key, ErrUnavailable, err)
	}
	buf := bytes.NewBuffer(make([]byte, 0, body.Size()))
	if err := copyBody(buf, key, body); err != nil {
		return Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.objects[key]
	var oldInfo *Info
	if old != nil {
		oldInfo = &old.info
	}
	if err := checkCondition(key, cond, oldInfo); err != nil {
		return Info{}, err
	}
	if old == nil {
		i, _ := slices.BinarySearch(m.keys, key)
		if err := m.checkFolder(key); err != nil {
			return Info{}, err
		}
		m.keys = slices.Insert(m.keys, i, key)
	}
	m.puts++
	o := &memObject{body: buf.Bytes(), info: Info{Key: key, Size: body.Size(), ETag: fmt.Sprintf("%016x", m.puts), Modified: m.now()}}
	m.objects[key] = o
	return o.info, nil
}

// checkFolder refuses what stores with folders refuse: a key below or above another one.
func (m *Memory) checkFolder(key string) error {
	for i := range len(key) {
		if key[i] == '/' && m.objects[key[:i]] != nil {
			return folderError(key)
		}
	}
	j, _ := slices.BinarySearch(m.keys, key+"/")
	if j < len(m.keys) && strings.HasPrefix(m.keys[j], key+"/") {
		return folderError(key)
	}
	return nil
}

// Stat implements Bucket.
func (m *Memory) Stat(ctx context.Context, _ Op, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	o, err := m.find(ctx, "stat", key)
	if err != nil {
		return Info{}, err
	}
	return o.info, nil
}

// List implements Bucket.
func (m *Memory) List(ctx context.Context, _ Op, prefix, after string, max int) (Page, error) {
	if err := CheckList(prefix, after); err != nil {
		return Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return Page{}, newError("list", prefix, ErrUnavailable, err)
	}
	max = pageSize(max)
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, _ := slices.BinarySearch(m.keys, prefix)
	if after >= prefix {
		var found bool
		if i, found = slices.BinarySearch(m.keys, after); found {
			i++
		}
	}
	var p Page
	for ; i < len(m.keys) && strings.HasPrefix(m.keys[i], prefix); i++ {
		if len(p.Items) == max {
			p.Next = p.Items[max-1].Key
			break
		}
		p.Items = append(p.Items, m.objects[m.keys[i]].info)
	}
	return p, nil
}

// Delete implements Bucket.
func (m *Memory) Delete(ctx context.Context, _ Op, keys []string) error {
	if err := ctx.Err(); err != nil {
		return newError("delete", "", ErrUnavailable, err)
	}
	failed := failures{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			failed[key] = err
			continue
		}
		if m.objects[key] == nil {
			continue
		}
		delete(m.objects, key)
		i, _ := slices.BinarySearch(m.keys, key)
		m.keys = slices.Delete(m.keys, i, i+1)
	}
	return failed.err()
}

// Uploads implements Bucket: there are none.
func (m *Memory) Uploads(context.Context, Op, string, bool) ([]Upload, error) { return nil, nil }

// checkCondition decides a conditional put against the object that is there (nil: none).
func checkCondition(key string, cond Condition, old *Info) error {
	switch {
	case cond.IfNoneMatch && old != nil:
		return newError("put", key, ErrPrecondition, errors.New("the key exists"))
	case cond.IfMatch != "" && old == nil:
		return newError("put", key, ErrPrecondition, ErrNotFound)
	case cond.IfMatch != "" && old.ETag != cond.IfMatch:
		return newError("put", key, ErrPrecondition, fmt.Errorf("the ETag is %s, not %s", old.ETag, cond.IfMatch))
	}
	return nil
}

func rangeError(key string, off, n, size int64) error {
	return newError("get", key, ErrRange, fmt.Errorf("bytes %d to %d of an object of %d bytes", off, off+n, size))
}

func sizeError(key string, size, limit int64) error {
	return newError("get", key, ErrTooLarge, fmt.Errorf("%d bytes, at most %d are read", size, limit))
}

func folderError(key string) error {
	return newError("put", key, ErrKey, errors.New("another key is its folder, or below it"))
}
