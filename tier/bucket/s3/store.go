package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Store implements bucket.Bucket and bucket.Whole.
type Store struct {
	core      *minio.Core
	creds     *credentials.Credentials
	transport *http.Transport
	bucket    string
	prefix    string // empty, or with a slash at its end
	endpoint  string // for texts
	region    string
	lanes     map[string]*lane
}

// Open returns the bucket of o.URL after it has listed one key there (unless NoCheck). ErrConfig: there is no such bucket or it is in another
// region; ErrDenied: the credentials are missing, wrong, or may not list; ErrUnavailable: the endpoint does not answer.
func Open(ctx context.Context, o Options) (bucket.Bucket, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	if o.NoCheck {
		return s, nil
	}
	timeout := o.OpenTimeout
	if timeout <= 0 {
		timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := s.List(ctx, bucket.Op{Class: bucket.ClassTool, Kind: bucket.KindCluster}, "", "", 1); err != nil {
		s.transport.CloseIdleConnections()
		return nil, err
	}
	return s, nil
}

func newStore(o Options) (*Store, error) {
	if o.URL.Scheme != bucket.SchemeS3 {
		return nil, bucket.NewError("open", o.URL.String(), bucket.ErrConfig, errors.New("it is no s3:// URL"))
	}
	lanes := maps.Clone(defaultLanes)
	maps.Copy(lanes, o.Lanes)
	s := &Store{bucket: o.URL.Bucket, region: o.region(), lanes: map[string]*lane{}}
	idle := 0
	for class, l := range lanes {
		if l.Concurrency < 1 || l.Deadline <= 0 {
			return nil, bucket.NewError("open", o.URL.String(), bucket.ErrConfig, fmt.Errorf("class %s needs a concurrency and a deadline", class))
		}
		s.lanes[class] = newLane(l)
		idle += l.Concurrency
	}
	if o.URL.Prefix != "" {
		s.prefix = o.URL.Prefix + "/"
	}
	s.transport = newTransport(idle)
	creds, err := newCredentials(&o, s.transport)
	if err != nil {
		return nil, bucket.NewError("open", o.URL.String(), bucket.ErrConfig, err)
	}
	s.creds = creds
	host := o.URL.Endpoint
	if host == "" {
		host = amazonHost
	}
	lookup := minio.BucketLookupAuto
	if o.URL.PathStyle {
		lookup = minio.BucketLookupPath
	}
	s.core, err = minio.NewCore(host, &minio.Options{
		Creds: creds, Secure: !o.URL.Plain, Transport: asking{s.transport}, Region: s.region, BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, bucket.NewError("open", o.URL.String(), bucket.ErrConfig, err)
	}
	s.endpoint = s.core.EndpointURL().String()
	return s, nil
}

// Close drops idle connections. No call may be under way.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// request is one call on its way through a lane.
type request struct {
	verb string
	key  string // as the caller knows it
	op   bucket.Op
	size int64 // bytes that it moves
	once bool  // conditional: may be sent only once
}

// do runs f, which makes one HTTP request, as often as r allows, and turns its error into one of package bucket's.
func (s *Store) do(ctx context.Context, r request, f func(context.Context) error) error {
	l := s.lanes[r.op.Class]
	if l == nil {
		l = s.lanes[bucket.ClassTool]
	}
	renewals := 0
	var last error // of the attempt before
	for try := 1; ; {
		err := s.attempt(ctx, l, r, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return s.ended(ctx, r, err, last)
		}
		v := s.judge(r, err)
		switch {
		case v.expired && renewals < 2:
			renewals++
			s.creds.Expire()
			continue
		case v.slow:
			l.slowDown()
			if r.once {
				return v.err
			}
			last = err
			continue
		case r.once || !v.again || try == attempts:
			return v.err
		}
		wait := firstWait << try
		try++
		last = err
		if sleep(ctx, wait/2+rand.N(wait)) != nil {
			return s.ended(ctx, r, err, nil)
		}
	}
}

// ended is the error of a call whose context has ended: it tells what went wrong before, if anything did.
func (s *Store) ended(ctx context.Context, r request, err, last error) error {
	var body *bodyError
	if errors.As(err, &body) {
		return s.judge(r, err).err
	}
	if errors.Is(err, ctx.Err()) {
		err = last
	}
	if err == nil {
		return bucket.NewError(r.verb, r.key, bucket.ErrUnavailable, fmt.Errorf("%s: %w", s.endpoint, ctx.Err()))
	}
	var known *bucket.Error
	if errors.As(s.judge(r, err).err, &known) && known.Err != nil {
		err = known.Err
	}
	return bucket.NewError(r.verb, r.key, bucket.ErrUnavailable, fmt.Errorf("%w; before that: %w", ctx.Err(), err))
}

// attempt runs f once, in a slot of l and within its deadline.
func (s *Store) attempt(ctx context.Context, l *lane, r request, f func(context.Context) error) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	limit := l.deadline + time.Duration(r.size>>20)*perMiB
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	err := f(ctx)
	if err == nil {
		l.ok()
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
	}
	return err
}

func (s *Store) object(key string) string { return s.prefix + key }

// key is the reverse of object; false means that the object lies outside the prefix, or has no valid key.
func (s *Store) key(object string) (string, bool) {
	key, ok := strings.CutPrefix(object, s.prefix)
	return key, ok && bucket.CheckKey(key) == nil
}
