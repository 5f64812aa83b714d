package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is no broker's protocol: its consumers read the archive's own objects in ranges through minio-go, with nobody in between. That is what
// a replay through a broker is compared with. An address is S3Address's, a topic's name is its id as it stands in keys, and
// a record is a range.
const S3 Protocol = "s3"

// S3Range is the most bytes of a range: what the broker reads at a time, too.
const S3Range = 4 << 20

const s3Patience = time.Minute

func init() { Drivers[S3] = openS3 }

// S3Address holds what a driver for S3 needs; root is what all keys begin with.
func S3Address(endpoint, accessKey, secretKey, region, bucket, root string) string {
	v := url.Values{"endpoint": {endpoint}, "access": {accessKey}, "secret": {secretKey}, "region": {region}, "bucket": {bucket}, "root": {root}}
	return v.Encode()
}

type s3Driver struct {
	core   *minio.Core
	bucket string
	root   string
}

func openS3(_ context.Context, address string) (Driver, error) {
	v, err := url.ParseQuery(address)
	if err != nil {
		return nil, err
	}
	core, err := minio.NewCore(strings.TrimPrefix(v.Get("endpoint"), "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(v.Get("access"), v.Get("secret"), ""), Region: v.Get("region"), BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, err
	}
	return &s3Driver{core: core, bucket: v.Get("bucket"), root: v.Get("root")}, nil
}

func (d *s3Driver) Close() error { return nil }

var errReadsOnly = errors.New("bare S3 is only read")

func (d *s3Driver) CreateTopic(context.Context, Topic) error          { return errReadsOnly }
func (d *s3Driver) Producer(Topic, ProducerOptions) (Producer, error) { return nil, errReadsOnly }
func (d *s3Driver) Consumer(t Topic, o ConsumerOptions) (c Consumer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s3Patience)
	defer cancel()
	objects, err := S3Objects(ctx, d.core.Client, d.bucket, d.root)
	if err != nil {
		return nil, err
	}
	r := &s3Reader{d: d, buf: make([]byte, S3Range)}
	for _, p := range o.Partitions {
		r.left = append(r.left, objects[t.Name][p]...)
	}
	if len(r.left) == 0 {
		return nil, fmt.Errorf("no objects of topic %s, partitions %v", t.Name, o.Partitions)
	}
	return r, nil
}

// S3Object is a data object of the archive.
type S3Object struct {
	Key  string
	Size int64
}

// Ranges is how many records of a driver for S3 the object is.
func (o S3Object) Ranges() int64 { return (o.Size + S3Range - 1) / S3Range }

// S3Objects lists the data objects by topic id and partition, in the order of their offsets. Keys are described in docs/format.
func S3Objects(ctx context.Context, c *minio.Client, bucket, root string) (map[string]map[int32][]S3Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	found := map[string]map[int32][]S3Object{}
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: root + "data/", Recursive: true}) {
		if o.Err != nil {
			return nil, fmt.Errorf("list %sdata/: %w", root, o.Err)
		}
		parts := strings.Split(strings.TrimPrefix(o.Key, root), "/")
		if len(parts) != 5 {
			return nil, fmt.Errorf("key %q is none of a data object", o.Key)
		}
		p, err := strconv.ParseInt(parts[3], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("key %q has no partition: %w", o.Key, err)
		}
		if found[parts[2]] == nil {
			found[parts[2]] = map[int32][]S3Object{}
		}
		found[parts[2]][int32(p)] = append(found[parts[2]][int32(p)], S3Object{o.Key, o.Size})
	}
	for _, partitions := range found {
		for _, objects := range partitions {
			slices.SortFunc(objects, func(a, b S3Object) int { return strings.Compare(a.Key, b.Key) })
		}
	}
	return found, nil
}

// s3Reader reads one range after the other.
type s3Reader struct {
	d    *s3Driver
	left []S3Object
	at   int64 // in the first of them
	buf  []byte
}

// Poll reads the next range into the same buffer. After the last one it waits for the end.
func (r *s3Reader) Poll(ctx context.Context, each func(partition int32, offset int64, value []byte)) (int, error) {
	if len(r.left) == 0 {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	o := r.left[0]
	end := min(r.at+S3Range, o.Size)
	if err := r.read(ctx, o.Key, r.at, end); err != nil {
		return 0, fmt.Errorf("range [%d,%d) of %s: %w", r.at, end, o.Key, err)
	}
	value := r.buf[:end-r.at]
	clear(value[:min(len(value), stampBytes)]) // it has no time of sending
	each(0, r.at, value)
	if r.at = end; end == o.Size {
		r.left, r.at = r.left[1:], 0
	}
	return 1, nil
}

func (r *s3Reader) read(ctx context.Context, key string, from, end int64) (err error) {
	opts := minio.GetObjectOptions{}
	if err := opts.SetRange(from, end-1); err != nil {
		return err
	}
	body, _, _, err := r.d.core.GetObject(ctx, r.d.bucket, key, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	_, err = io.ReadFull(body, r.buf[:end-from])
	return err
}

func (r *s3Reader) Close() error { return nil }
