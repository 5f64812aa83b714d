package s3

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Put implements bucket.Bucket.
func (s *Store) Put(ctx context.Context, op bucket.Op, key string, body bucket.Body, cond bucket.Condition) (bucket.Info, error) {
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.Info{}, err
	}
	var info bucket.Info
	r := request{verb: bucket.VerbPut, key: key, op: op, size: body.Size(), once: cond.Set()}
	err := s.do(ctx, r, func(ctx context.Context) (err error) {
		info, err = s.put(ctx, key, body, cond)
		return err
	})
	if err != nil {
		return bucket.Info{}, err
	}
	return info, nil
}

func (s *Store) put(ctx context.Context, key string, body bucket.Body, cond bucket.Condition) (bucket.Info, error) {
	crc := encodeCRC(body.CRC32C())
	opts := minio.PutObjectOptions{
		DisableMultipart:     true,
		DisableContentSha256: true,
		UserMetadata:         map[string]string{headerCRC32C: crc},
	}
	if cond.IfNoneMatch {
		opts.SetMatchETagExcept("*")
	} else if cond.IfMatch != "" {
		opts.SetMatchETag(cond.IfMatch)
	}
	rc, err := body.Open()
	if err != nil {
		return bucket.Info{}, &bodyError{bucket.ErrRefused, fmt.Errorf("open the body: %w", err)}
	}
	rd := &bodyReader{r: rc, left: body.Size(), want: body.CRC32C(), hash: crc32.New(castagnoli)}
	if body.Size() == 0 {
		// No request body is read at all, so it is checked here.
		if _, err := rd.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			return bucket.Info{}, errors.Join(rd.failed(), rc.Close())
		}
	}
	up, err := s.core.PutObject(ctx, s.bucket, s.object(key), rd, body.Size(), "", "", opts)
	cerr := rd.close()
	if berr := rd.failed(); berr != nil {
		return bucket.Info{}, berr
	}
	if err != nil {
		return bucket.Info{}, err
	}
	if cerr != nil {
		return bucket.Info{}, &bodyError{bucket.ErrRefused, fmt.Errorf("close the body: %w", cerr)}
	}
	if up.ETag == "" {
		return bucket.Info{}, bucket.NewError(bucket.VerbPut, key, bucket.ErrRefused, fmt.Errorf("%s returned no ETag", s.endpoint))
	}
	if up.ChecksumCRC32C != "" && up.ChecksumCRC32C != crc {
		return bucket.Info{}, bucket.NewError(bucket.VerbPut, key, bucket.ErrCorrupt,
			fmt.Errorf("%s stored bytes with CRC32C %s, sent were %s", s.endpoint, up.ChecksumCRC32C, crc))
	}
	return bucket.Info{Key: key, Size: body.Size(), ETag: up.ETag, Modified: up.LastModified}, nil
}

// bodyReader gives a body to the HTTP client and checks its size and checksum before it gives the last byte, so that a request
// with wrong bytes never completes. The client may still read when the request has ended; the lock makes close wait for that.
type bodyReader struct {
	mu     sync.Mutex
	r      io.ReadCloser
	hash   hash.Hash32
	left   int64
	want   uint32
	err    error // of the body
	closed bool
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n := 0
	var err error
	if b.left > 0 {
		n, err = b.r.Read(p)
	}
	b.left -= int64(n)
	b.hash.Write(p[:n])
	switch {
	case b.left == 0:
		return b.end(n)
	case errors.Is(err, io.EOF):
		return 0, b.fail(bucket.ErrCorrupt, fmt.Errorf("the body ends %d bytes early", b.left))
	case err != nil:
		return 0, b.fail(bucket.ErrRefused, fmt.Errorf("read the body: %w", err))
	}
	return n, nil
}

// end checks the whole body when its last byte has been read.
func (b *bodyReader) end(n int) (int, error) {
	if b.hash.Sum32() != b.want {
		return 0, b.fail(bucket.ErrCorrupt, fmt.Errorf("the body's CRC32C is %08x, %08x was promised", b.hash.Sum32(), b.want))
	}
	var one [1]byte
	if m, err := io.ReadFull(b.r, one[:]); m > 0 {
		return 0, b.fail(bucket.ErrCorrupt, errors.New("the body has more bytes than promised"))
	} else if !errors.Is(err, io.EOF) {
		return 0, b.fail(bucket.ErrRefused, fmt.Errorf("read the body: %w", err))
	}
	if n > 0 {
		return n, nil
	}
	return 0, io.EOF
}

func (b *bodyReader) fail(kind, err error) error {
	b.err = &bodyError{kind, err}
	return b.err
}

func (b *bodyReader) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *bodyReader) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.r.Close()
}
