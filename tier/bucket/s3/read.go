package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

const headerCRC32C = "X-Amz-Checksum-Crc32c"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Get implements bucket.Bucket.
func (s *Store) Get(ctx context.Context, op bucket.Op, key string, off, n int64, dst []byte) (int, bucket.Info, error) {
	if err := bucket.CheckGet(key, off, n, dst); err != nil {
		return 0, bucket.Info{}, err
	}
	if n == 0 {
		return s.getNothing(ctx, op, key, off)
	}
	var info bucket.Info
	err := s.do(ctx, request{verb: bucket.VerbGet, key: key, op: op, size: n}, func(ctx context.Context) (err error) {
		info, err = s.getRange(ctx, key, off, dst[:n])
		return err
	})
	if err != nil {
		return 0, bucket.Info{}, err
	}
	return int(n), info, nil
}

// getNothing checks that an empty range lies inside the object; S3 has no empty ranges.
func (s *Store) getNothing(ctx context.Context, op bucket.Op, key string, off int64) (int, bucket.Info, error) {
	info, err := s.Stat(ctx, op, key)
	if err == nil && off > info.Size {
		err = bucket.NewError(bucket.VerbGet, key, bucket.ErrRange, fmt.Errorf("offset %d of an object of %d bytes", off, info.Size))
	}
	return 0, info, err
}

func (s *Store) getRange(ctx context.Context, key string, off int64, dst []byte) (bucket.Info, error) {
	n := int64(len(dst))
	opts := minio.GetObjectOptions{}
	opts.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	body, obj, header, err := s.core.GetObject(ctx, s.bucket, s.object(key), opts)
	if err != nil {
		return bucket.Info{}, err
	}
	defer body.Close()
	first, last, size := int64(0), obj.Size-1, obj.Size
	if cr := header.Get("Content-Range"); cr != "" {
		if _, err := fmt.Sscanf(cr, "bytes %d-%d/%d", &first, &last, &size); err != nil {
			return bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrUnavailable, fmt.Errorf("%s answers with Content-Range %q", s.endpoint, cr))
		}
	}
	switch {
	case off+n > size:
		return bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrRange, fmt.Errorf("bytes %d to %d of an object of %d bytes", off, off+n, size))
	case first != off || last != off+n-1 || obj.Size >= 0 && obj.Size != n:
		return bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrUnavailable,
			fmt.Errorf("%s answers with bytes %d to %d when asked for %d to %d", s.endpoint, first, last, off, off+n-1))
	}
	if got, err := io.ReadFull(body, dst); err != nil {
		return bucket.Info{}, s.cut(ctx, key, int64(got), n, err)
	}
	return bucket.Info{Key: key, Size: size, ETag: obj.ETag, Modified: obj.LastModified}, nil
}

// cut is the error for a body that ended early.
func (s *Store) cut(ctx context.Context, key string, got, want int64, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return bucket.NewError(bucket.VerbGet, key, bucket.ErrUnavailable, fmt.Errorf("%s broke off after %d of %d bytes: %w", s.endpoint, got, want, err))
}

// GetWhole implements bucket.Whole: one request, and the checksum verified when the store has one.
func (s *Store) GetWhole(ctx context.Context, op bucket.Op, key string, limit int64) ([]byte, bucket.Info, error) {
	if err := bucket.CheckKey(key); err != nil {
		return nil, bucket.Info{}, err
	}
	var info bucket.Info
	var buf []byte
	err := s.do(ctx, request{verb: bucket.VerbGet, key: key, op: op, size: min(limit, 64<<20)}, func(ctx context.Context) (err error) {
		buf, info, err = s.getWhole(ctx, key, limit)
		return err
	})
	if err != nil {
		return nil, bucket.Info{}, err
	}
	return buf, info, nil
}

func (s *Store) getWhole(ctx context.Context, key string, limit int64) ([]byte, bucket.Info, error) {
	opts := minio.GetObjectOptions{}
	opts.Set("X-Amz-Checksum-Mode", "ENABLED")
	body, obj, header, err := s.core.GetObject(ctx, s.bucket, s.object(key), opts)
	if err != nil {
		return nil, bucket.Info{}, err
	}
	defer body.Close()
	if obj.Size > limit {
		return nil, bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrTooLarge, fmt.Errorf("%d bytes, at most %d are read", obj.Size, limit))
	}
	buf := make([]byte, max(obj.Size, 0))
	if obj.Size >= 0 {
		if got, err := io.ReadFull(body, buf); err != nil {
			return nil, bucket.Info{}, s.cut(ctx, key, int64(got), obj.Size, err)
		}
	} else if buf, err = io.ReadAll(io.LimitReader(body, limit+1)); err != nil {
		return nil, bucket.Info{}, s.cut(ctx, key, int64(len(buf)), -1, err)
	} else if int64(len(buf)) > limit {
		return nil, bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrTooLarge, fmt.Errorf("at most %d bytes are read", limit))
	}
	if err := verify(header, crc32.Checksum(buf, castagnoli)); err != nil {
		return nil, bucket.Info{}, bucket.NewError(bucket.VerbGet, key, bucket.ErrCorrupt, err)
	}
	return buf, bucket.Info{Key: key, Size: int64(len(buf)), ETag: obj.ETag, Modified: obj.LastModified}, nil
}

// verify compares crc with the checksum in the store's answer. None, or one of parts, says nothing.
func verify(header http.Header, crc uint32) error {
	v := header.Get(headerCRC32C)
	if v == "" || strings.Contains(v, "-") {
		return nil
	}
	if v != encodeCRC(crc) {
		return fmt.Errorf("the bytes have CRC32C %s, the store knows %s", encodeCRC(crc), v)
	}
	return nil
}

// encodeCRC is how S3 writes a CRC32C in headers.
func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// Stat implements bucket.Bucket.
func (s *Store) Stat(ctx context.Context, op bucket.Op, key string) (bucket.Info, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Info{}, err
	}
	var info bucket.Info
	err := s.do(ctx, request{verb: bucket.VerbStat, key: key, op: op}, func(ctx context.Context) error {
		obj, err := s.core.StatObject(ctx, s.bucket, s.object(key), minio.StatObjectOptions{})
		if err != nil {
			return s.statError(ctx, err)
		}
		info = bucket.Info{Key: key, Size: obj.Size, ETag: obj.ETag, Modified: obj.LastModified}
		return nil
	})
	return info, err
}

// statError makes sure that a 404 means the object: an answer to HEAD has no body that would tell it from a missing bucket, and
// whoever took a missing bucket for an empty one would start from scratch.
func (s *Store) statError(ctx context.Context, err error) error {
	var resp minio.ErrorResponse
	if !errors.As(err, &resp) || resp.StatusCode != http.StatusNotFound {
		return err
	}
	ok, berr := s.core.BucketExists(ctx, s.bucket)
	if berr != nil {
		return berr
	}
	if !ok {
		resp.Code = minio.NoSuchBucket
	}
	return resp
}
