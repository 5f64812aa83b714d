package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// List implements bucket.Bucket. When the page is full at 1000 keys, Next may be set though nothing follows.
func (s *Store) List(ctx context.Context, op bucket.Op, prefix, after string, max int) (bucket.Page, error) {
	if err := bucket.CheckList(prefix, after); err != nil {
		return bucket.Page{}, err
	}
	if max <= 0 || max > bucket.MaxList {
		max = bucket.MaxList
	}
	if after > prefix && !strings.HasPrefix(after, prefix) {
		return bucket.Page{}, nil // all keys with the prefix lie before after
	}
	if after <= prefix && after != prefix {
		after = "" // all lie behind it; not every server takes a start outside the prefix
	}
	var page bucket.Page
	err := s.do(ctx, request{verb: bucket.VerbList, key: prefix, op: op}, func(ctx context.Context) (err error) {
		page, err = s.list(ctx, prefix, after, max)
		return err
	})
	if err != nil {
		return bucket.Page{}, err
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, after string, max int) (bucket.Page, error) {
	noOwner := false
	// One key more than asked for tells whether there is more.
	opts := minio.ListObjectsOptions{Prefix: s.object(prefix), Recursive: true, FetchOwner: &noOwner, MaxKeys: min(max+1, bucket.MaxList)}
	if after != "" {
		opts.StartAfter = s.object(after)
	}
	var page bucket.Page
	seen := 0
	last := ""
	for obj := range s.core.ListObjectsIter(ctx, s.bucket, opts) {
		if obj.Err != nil {
			return bucket.Page{}, obj.Err
		}
		if len(page.Items) == max {
			page.Next = page.Items[max-1].Key
			break
		}
		if last != "" && obj.Key <= last {
			return bucket.Page{}, fmt.Errorf("%s lists %q after %q", s.endpoint, obj.Key, last)
		}
		last = obj.Key
		seen++
		if key, ok := s.key(obj.Key); ok {
			page.Items = append(page.Items, bucket.Info{Key: key, Size: obj.Size, ETag: obj.ETag, Modified: obj.LastModified})
		}
		if seen == bucket.MaxList && len(page.Items) == max {
			page.Next = page.Items[max-1].Key
			break // the next request is the caller's
		}
	}
	// The iterator ends without a word when the context does.
	return page, ctx.Err()
}

// Delete implements bucket.Bucket.
func (s *Store) Delete(ctx context.Context, op bucket.Op, keys []string) error {
	failed := map[string]error{}
	var good []string
	for _, key := range keys {
		if err := bucket.CheckKey(key); err != nil {
			failed[key] = err
			continue
		}
		good = append(good, key)
	}
	slices.Sort(good)
	good = slices.Compact(good)
	for batch := range slices.Chunk(good, bucket.MaxList) {
		var bad map[string]error
		err := s.do(ctx, request{verb: bucket.VerbDelete, key: batch[0], op: op}, func(ctx context.Context) (err error) {
			bad, err = s.delete(ctx, batch)
			return err
		})
		if err != nil {
			kind, cause := bucket.ErrUnavailable, err
			var known *bucket.Error
			if errors.As(err, &known) {
				kind, cause = known.Kind, known.Err
			}
			for _, key := range batch {
				failed[key] = bucket.NewError(bucket.VerbDelete, key, kind, cause)
			}
		}
		maps.Copy(failed, bad)
	}
	if len(failed) > 0 {
		return &bucket.DeleteError{Failed: failed}
	}
	return nil
}

// delete sends one request and returns the keys that the store did not say to be gone; the error is that of the request.
func (s *Store) delete(ctx context.Context, batch []string) (map[string]error, error) {
	results, err := s.core.RemoveObjectsWithIter(ctx, s.bucket, func(yield func(minio.ObjectInfo) bool) {
		for _, key := range batch {
			if !yield(minio.ObjectInfo{Key: s.object(key)}) {
				return
			}
		}
	}, minio.RemoveObjectsOptions{})
	if err != nil {
		return nil, err
	}
	open := map[string]error{}
	for _, key := range batch {
		open[key] = bucket.NewError(bucket.VerbDelete, key, bucket.ErrUnavailable, fmt.Errorf("%s did not say what became of it", s.endpoint))
	}
	for res := range results {
		if res.Err == nil {
			if key, ok := s.key(res.ObjectName); ok {
				delete(open, key)
			}
			continue
		}
		var resp minio.ErrorResponse
		// An error of one key has no HTTP status of its own.
		if !errors.As(res.Err, &resp) || resp.StatusCode != 0 {
			return nil, res.Err
		}
		key, ok := s.key(res.ObjectName)
		switch {
		case !ok:
			return nil, res.Err
		case resp.Code == minio.NoSuchKey:
			delete(open, key)
		default:
			open[key] = s.judge(request{verb: bucket.VerbDelete, key: key}, res.Err).err
		}
	}
	return open, ctx.Err()
}

// Uploads implements bucket.Bucket. It lists from the root of the bucket, because not every server lists by prefix.
func (s *Store) Uploads(ctx context.Context, op bucket.Op, prefix string, abort bool) ([]bucket.Upload, error) {
	if err := bucket.CheckList(prefix, ""); err != nil {
		return nil, err
	}
	var ups []bucket.Upload
	keyMarker, idMarker := "", ""
	for {
		var res minio.ListMultipartUploadsResult
		err := s.do(ctx, request{verb: bucket.VerbUploads, key: prefix, op: op}, func(ctx context.Context) (err error) {
			res, err = s.core.ListMultipartUploads(ctx, s.bucket, "", keyMarker, idMarker, "", bucket.MaxList)
			return err
		})
		if err != nil {
			return ups, err
		}
		for _, u := range res.Uploads {
			if key, ok := s.key(u.Key); ok && strings.HasPrefix(key, prefix) {
				ups = append(ups, bucket.Upload{Key: key, ID: u.UploadID, Initiated: u.Initiated})
			}
		}
		if !res.IsTruncated || res.NextKeyMarker == keyMarker && res.NextUploadIDMarker == idMarker {
			break
		}
		keyMarker, idMarker = res.NextKeyMarker, res.NextUploadIDMarker
	}
	if !abort {
		return ups, nil
	}
	for _, u := range ups {
		err := s.do(ctx, request{verb: bucket.VerbUploads, key: u.Key, op: op}, func(ctx context.Context) error {
			return s.core.AbortMultipartUpload(ctx, s.bucket, s.object(u.Key), u.ID)
		})
		var resp minio.ErrorResponse
		if err != nil && !(errors.As(err, &resp) && resp.Code == minio.NoSuchUpload) {
			return ups, err
		}
	}
	return ups, nil
}
