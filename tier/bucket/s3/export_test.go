package s3

import (
	"context"

	"github.com/minio/minio-go/v7"
)

// StartUpload begins a multipart upload and leaves it.
func (s *Store) StartUpload(ctx context.Context, key string) error {
	_, err := s.core.NewMultipartUpload(ctx, s.bucket, s.object(key), minio.PutObjectOptions{})
	return err
}
