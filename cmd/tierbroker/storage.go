package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/config"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
)

const (
	// bucketPatience is how long a first start waits for a store that doesn't answer.
	bucketPatience = 15 * time.Second
	bucketRetry    = 500 * time.Millisecond
	// bucketQuick is how long a broker that knows its bucket waits before it starts
	// without; bucketRecheck is the pause between looks in the background.
	bucketQuick   = 2 * time.Second
	bucketRecheck = 3 * time.Second
	// diskRetry is the pause between looks at a disk that is too full to start.
	diskRetry = time.Second
)

// bucketURL is the bucket's URL, inside the data directory unless one was set.
func bucketURL(c *config.Config) (bucket.URL, error) {
	text := c.Bucket
	if text == "" {
		dir, err := filepath.Abs(filepath.Join(c.DataDir, "bucket"))
		if err != nil {
			return bucket.URL{}, mistake("data-dir: %w", err)
		}
		text = bucket.URL{Scheme: bucket.SchemeFile, Path: dir}.String()
	}
	u, err := parseBucket(text)
	if err != nil {
		return u, mistake("bucket: %w", err)
	}
	return u, nil
}

func parseBucket(text string) (bucket.URL, error) {
	u, err := bucket.ParseURL(text)
	if err == nil && u.Scheme != bucket.SchemeFile && u.Scheme != bucket.SchemeS3 {
		err = fmt.Errorf("%s keeps nothing; use file:///PATH or s3://NAME", text)
	}
	return u, err
}

// checkBucket judges the bucket's URL when the configuration is read.
func checkBucket(text string) error {
	_, err := parseBucket(text)
	return err
}

// openBucket opens the store without asking it anything.
func openBucket(ctx context.Context, u bucket.URL) (bucket.Bucket, error) {
	if u.Scheme == bucket.SchemeS3 {
		b, err := s3.Open(ctx, s3.Options{URL: u, NoCheck: true})
		if err != nil {
			return nil, mistake("can't open the bucket: %w", err)
		}
		return b, nil
	}
	// The folder itself is made at need; one whose parent is missing is a wrong
	// path, or a disk that isn't mounted.
	if _, err := os.Stat(filepath.Dir(u.Path)); err != nil {
		return nil, mistake("can't open the bucket: %w", err)
	}
	b, err := bucket.OpenDir(u.Path)
	if err != nil {
		return nil, mistake("can't open the bucket: %w", err)
	}
	return b, nil
}

// bucketMistake tells whether an error of the bucket is one that only the operator
// can end.
func bucketMistake(err error) bool {
	for _, kind := range []error{bucket.ErrConfig, bucket.ErrDenied, bucket.ErrProbe, bucket.ErrRefused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// awaitBucket runs check until the store answers, at most for patience.
func awaitBucket(ctx context.Context, patience time.Duration, check func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check(ctx)
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case bucketMistake(err):
			return mistake("the bucket can't be used: %w", err)
		case errors.As(err, new(userError)):
			return err
		case time.Now().After(deadline):
			return mistake("the bucket does not answer: %w", err)
		}
		select {
		case <-time.After(bucketRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// openSet waits on a full disk until the index has the little space that it needs to
// open; readiness and the log say so.
func (n *node) openSet(ctx context.Context, o partition.SetOptions) (*partition.Set, error) {
	for told := false; ; told = true {
		set, err := partition.OpenSet(o)
		if !errors.Is(err, index.ErrStalled) {
			if told && err == nil {
				n.d.health.clear("disk")
				n.d.log.Info("the disk has space again; the start goes on")
			}
			return set, err
		}
		if !told {
			n.d.log.Error("the disk is full; the start waits until it has space", zap.String("dir", o.Dir), zap.Error(err))
		}
		n.d.health.set("disk", "the start waits for space: "+err.Error(), true)
		select {
		case <-time.After(diskRetry):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// remeasure raises the budget when the disk can give more than at the start, which may
// have been on a full one. It is not lowered: a disk that others fill shows when a file
// finds no room.
func (n *node) remeasure() {
	if n.set == nil {
		return
	}
	_, free, err := diskSpace(n.d.dir.path)
	if err != nil {
		return // the start has told, or the next one will
	}
	if b := diskBudget(n.d.config, n.set.Log().DiskBytes(), free); b > n.set.DiskBudget() {
		n.set.SetDiskBudget(b)
	}
}

// diskBudget is the commit log's budget: the setting, and not more than the disk
// can give now.
func diskBudget(c *config.Config, used, free int64) int64 {
	room := used + free - int64(c.DiskMinFree)
	least := 4 * int64(c.SegmentFileBytes)
	budget := int64(c.DiskBudget)
	if budget == 0 || budget > room {
		budget = room
	}
	return max(budget, least)
}

// folderBytes sums the sizes of a folder's files; a missing folder has none.
func folderBytes(path string) (int64, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", path, err)
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if info.Mode().IsRegular() {
			total += info.Size()
		}
	}
	return total, nil
}
