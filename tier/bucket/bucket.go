package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Operation classes: each has its own concurrency, deadline and hold-off in stores that talk to a network.
const (
	ClassRoll  = "roll"  // data objects and pages on their way up
	ClassWAL   = "wal"   // WAL objects
	ClassHead  = "head"  // heads, the cluster root, seals: small and conditional
	ClassCold  = "cold"  // reads on behalf of consumers
	ClassSweep = "sweep" // listing and deleting
	ClassTool  = "tool"  // tierctl and the probe
)

// Kinds of objects, for the bill.
const (
	KindData    = "data"
	KindHead    = "head"
	KindPage    = "page"
	KindWAL     = "wal"
	KindCluster = "cluster"
	KindHistory = "history"
)

// Op labels a call: who calls (Class), for which topic (may be empty), and what kind of object it touches.
type Op struct{ Class, Topic, Kind string }

// Info describes an object as the store knows it.
type Info struct {
	Key      string
	Size     int64     // bytes
	ETag     string    // opaque, without quotes; equal ETags mean equal bytes
	Modified time.Time // when it was put; Put itself may leave it zero
}

// Condition makes a Put conditional. At most one field may be set; the zero value is an unconditional put.
type Condition struct {
	IfNoneMatch bool   // create only: fails when the key exists
	IfMatch     string // replace only: fails unless the key's ETag is this one
}

// Set tells whether c asks for anything.
func (c Condition) Set() bool { return c.IfNoneMatch || c.IfMatch != "" }

// Body is what a Put uploads. It may be opened more than once (retries), and must give the same Size bytes each time.
type Body interface {
	Size() int64
	CRC32C() uint32 // Castagnoli, of all Size bytes
	Open() (io.ReadCloser, error)
}

// Page is a part of a listing.
type Page struct {
	Items []Info // in lexicographic order of keys
	Next  string // pass as after to go on (what follows may turn out to be nothing); "" means that this page is the last one
}

// Upload is a multipart upload that was begun and neither completed nor aborted.
type Upload struct {
	Key       string
	ID        string
	Initiated time.Time
}

// Bucket is an object store. See the package comment for what every implementation promises.
type Bucket interface {
	// Get fills dst[:n] with the bytes [off, off+n) and returns n and what the store said about the object.
	// It fills exactly n bytes or fails: ErrRange when the object ends before off+n, ErrUnavailable when the body was
	// cut on the way, ErrNotFound. After a failure the content of dst is undefined. n may be 0, never negative.
	Get(ctx context.Context, op Op, key string, off, n int64, dst []byte) (int, Info, error)
	// Put stores body under key, all of it or nothing, durable when Put returns. ErrPrecondition: the condition did not hold,
	// or may not have held at the time; read the key back to know. Any other error of a conditional put (ErrUnavailable,
	// a canceled ctx) leaves its outcome unknown. ErrCorrupt: the bytes did not have the checksum that body promised.
	Put(ctx context.Context, op Op, key string, body Body, cond Condition) (Info, error)
	// Stat returns what Get would say about the object, or ErrNotFound.
	Stat(ctx context.Context, op Op, key string) (Info, error)
	// List returns up to max (1 to 1000, others mean 1000) objects with the prefix whose key is greater than after.
	List(ctx context.Context, op Op, prefix, after string, max int) (Page, error)
	// Delete removes keys; those that do not exist are fine. What could not be removed is told by a *DeleteError.
	Delete(ctx context.Context, op Op, keys []string) error
	// Uploads lists unfinished multipart uploads below prefix, and aborts them if told to. Stores without multipart
	// uploads return none.
	Uploads(ctx context.Context, op Op, prefix string, abort bool) ([]Upload, error)
}

// Whole is implemented by buckets that can read an object in one call without knowing its size. GetAll uses it.
type Whole interface {
	// GetWhole returns the whole object, ErrTooLarge if it is larger than limit bytes, ErrCorrupt if the store knows a
	// checksum and the bytes do not have it.
	GetWhole(ctx context.Context, op Op, key string, limit int64) ([]byte, Info, error)
}

// MaxList is the most a List returns at once.
const MaxList = 1000

// getAllTries bounds how often GetAll starts again because the object was replaced between its two calls.
const getAllTries = 16

// GetAll returns a whole object of at most limit bytes, as one version of it: bytes and ETag belong together.
func GetAll(ctx context.Context, b Bucket, op Op, key string, limit int64) ([]byte, Info, error) {
	if w, ok := b.(Whole); ok {
		return w.GetWhole(ctx, op, key, limit)
	}
	for range getAllTries {
		info, err := b.Stat(ctx, op, key)
		if err != nil {
			return nil, Info{}, err
		}
		if info.Size > limit {
			return nil, info, newError("get", key, ErrTooLarge, fmt.Errorf("%d bytes, at most %d are read", info.Size, limit))
		}
		buf := make([]byte, info.Size)
		_, got, err := b.Get(ctx, op, key, 0, info.Size, buf)
		if err == nil && got.ETag == info.ETag {
			return buf, got, nil
		}
		if err != nil && !errors.Is(err, ErrRange) {
			return nil, Info{}, err
		}
	}
	return nil, Info{}, newError("get", key, ErrUnavailable, errors.New("it is replaced faster than it can be read"))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type bytesBody struct {
	b   []byte
	crc uint32
}

// BytesBody returns a Body of b, which must not change until the Put has returned.
func BytesBody(b []byte) Body { return &bytesBody{b: b, crc: crc32.Checksum(b, castagnoli)} }

func (b *bytesBody) Size() int64                  { return int64(len(b.b)) }
func (b *bytesBody) CRC32C() uint32               { return b.crc }
func (b *bytesBody) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.b)), nil }

type funcBody struct {
	size int64
	crc  uint32
	open func() (io.ReadCloser, error)
}

// FuncBody returns a Body whose bytes come from open, which may be called more than once.
func FuncBody(size int64, crc uint32, open func() (io.ReadCloser, error)) Body {
	return &funcBody{size: size, crc: crc, open: open}
}

func (b *funcBody) Size() int64                  { return b.size }
func (b *funcBody) CRC32C() uint32               { return b.crc }
func (b *funcBody) Open() (io.ReadCloser, error) { return b.open() }
