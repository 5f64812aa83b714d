package s3

import (
	"context"
	"errors"

	"github.com/minio/minio-go/v7"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Create makes the bucket of o.URL. It is for tests and tools: the daemon never creates one, so that a mistyped name is an
// error. A bucket that is there and the caller's own is fine.
func Create(ctx context.Context, o Options) error {
	s, err := newStore(o)
	if err != nil {
		return err
	}
	defer s.transport.CloseIdleConnections()
	r := request{verb: "create", key: "bucket " + s.bucket, op: bucket.Op{Class: bucket.ClassTool}}
	return s.do(ctx, r, func(ctx context.Context) error {
		err := s.core.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: s.region})
		var resp minio.ErrorResponse
		if errors.As(err, &resp) && resp.Code == "BucketAlreadyOwnedByYou" {
			return nil
		}
		return err
	})
}
