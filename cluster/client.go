package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// DefaultPrefix is where the state lives in etcd unless told otherwise.
const DefaultPrefix = "/tierbroker/"

// Options say which etcd to use and how. Exactly one of Embedded, Endpoints and
// Etcd is set.
type Options struct {
	Embedded  *EmbeddedOptions // run an etcd in this process
	Endpoints []string         // use an etcd cluster
	TLS       *tls.Config      // for Endpoints; nil: plain
	Username  string           // for Endpoints; empty: no login
	Password  string
	// Etcd is a client made by the caller, who closes it after the Client; two
	// nodes in one process share one embedded etcd by it.
	Etcd *clientv3.Client

	Prefix string // default DefaultPrefix; a missing slash at the end is added
	// ClusterID is used when etcd is empty (empty: a random one), and checked when it
	// is not (empty: any). Incarnation likewise, for a cluster restored from a bucket.
	ClusterID   string
	Incarnation string
	// Existing makes an empty etcd an error (ErrNoCluster) instead of a new cluster:
	// for nodes that belong to a cluster already, whose etcd must have been lost.
	Existing bool
	// BrokerID is whose dynamic settings hold on this node; 0 and below: no broker.
	BrokerID int32
	// Static are this process's settings under Kafka's names: of brokers, or of
	// topics (as the default of all topics).
	Static  map[string]string
	Timeout time.Duration // of one request to etcd; default 10 s
	Now     func() int64  // ms since 1970; nil: the system's clock
	Logger  *zap.Logger   // warnings of the etcd client library; nil: none
}

// Client reads and changes the cluster's state.
type Client struct {
	o        Options
	keys     schema
	embedded *Embedded
	etcd     *clientv3.Client
	ownEtcd  bool // close etcd with the Client

	image   atomic.Pointer[Image]
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each new image
	lagging error         // why the mirror is not following, nil when it is
	moves   shardQueues

	run    context.Context // ends with Close; background work runs under it
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	err    error
}

// Start connects, makes the cluster record when etcd is empty, loads the first
// image and starts to follow. ErrOtherCluster, ErrSchema, ErrInUse and
// ErrUnavailable tell what stands in the way.
func Start(ctx context.Context, o Options) (*Client, error) {
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	c := &Client{o: o, keys: schema{o.Prefix}, changed: make(chan struct{})}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	c.run, c.cancel = context.WithCancel(context.Background())
	if err := c.open(ctx); err != nil {
		c.cancel()
		return nil, errors.Join(err, c.disconnect())
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.follow(c.run)
	}()
	if c.embedded != nil {
		c.wg.Go(func() { c.maintain(c.run) })
		c.wg.Go(c.endWithEtcd)
	}
	return c, nil
}

func checkOptions(o *Options) error {
	n := 0
	for _, set := range []bool{o.Embedded != nil, len(o.Endpoints) > 0, o.Etcd != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return errors.New("cluster: set exactly one of Embedded, Endpoints and Etcd")
	}
	o.Prefix = defaultTo(o.Prefix, DefaultPrefix)
	if o.Prefix[len(o.Prefix)-1] != '/' {
		o.Prefix += "/"
	}
	o.Timeout = defaultTo(o.Timeout, 10*time.Second)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Static = NormalizeStatic(o.Static)
	if o.BrokerID <= 0 {
		o.BrokerID = DefaultConfig
	}
	return nil
}

func (c *Client) connect(ctx context.Context) error {
	switch {
	case c.o.Etcd != nil:
		c.etcd = c.o.Etcd
	case c.o.Embedded != nil:
		e, err := StartEmbedded(ctx, *c.o.Embedded)
		if err != nil {
			return err
		}
		c.embedded, c.etcd = e, e.Client()
	default:
		cl, err := clientv3.New(clientv3.Config{
			Endpoints: c.o.Endpoints, TLS: c.o.TLS, Username: c.o.Username, Password: c.o.Password,
			DialTimeout: c.o.Timeout, DialKeepAliveTime: 6 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
			// The default pauses of up to two minutes between attempts to connect would cost a lease
			// after an etcd that was away has come back.
			DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 3 * time.Second,
				Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}})},
			// A member that lost its quorum must not look alive to its clients.
			RejectOldCluster:   false,
			MaxCallSendMsgSize: 2 << 20, MaxCallRecvMsgSize: 64 << 20,
			Logger: quiet(c.o.Logger),
		})
		if err != nil {
			return fmt.Errorf("%w: connect to etcd %v: %w", ErrUnavailable, c.o.Endpoints, err)
		}
		c.etcd, c.ownEtcd = cl, true
	}
	return nil
}

func (c *Client) disconnect() error {
	var err error
	if c.ownEtcd {
		if cerr := c.etcd.Close(); cerr != nil && !errors.Is(cerr, context.Canceled) {
			err = fmt.Errorf("close etcd client: %w", cerr)
		}
	}
	if c.embedded != nil {
		err = errors.Join(err, c.embedded.Close())
	}
	return err
}

// open makes or checks the cluster record and loads the first image.
func (c *Client) open(ctx context.Context) error {
	if err := c.restoring(ctx); err != nil {
		return err
	}
	if err := c.ensureMeta(ctx); err != nil {
		return err
	}
	img, err := c.load(ctx)
	if err != nil {
		return err
	}
	if img.meta.ClusterID == "" {
		return &CorruptError{Key: c.keys.meta(), Hint: "missing after it was written"}
	}
	c.image.Store(img)
	return nil
}

func (c *Client) ensureMeta(ctx context.Context) error {
	value, err := encodeRecord(Meta{
		ClusterID:   defaultTo(c.o.ClusterID, NewID()),
		Incarnation: defaultTo(c.o.Incarnation, NewID()),
		Schema:      schemaVersion,
		CreatedAt:   c.o.Now(),
	})
	if err != nil {
		return err
	}
	key := c.keys.meta()
	if c.o.Existing {
		r, err := c.get(ctx, "read cluster record", key)
		if err == nil && len(r.Kvs) == 0 {
			err = fmt.Errorf("%w: expected cluster %s", ErrNoCluster, c.o.ClusterID)
		}
		if err != nil {
			return err
		}
	}
	r, err := c.retryTxn(ctx, "read cluster record",
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(key, value)},
		[]clientv3.Op{clientv3.OpGet(key)})
	if err != nil || r.Succeeded {
		return err
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return &CorruptError{Key: key, Hint: "vanished"}
	}
	m, err := decodeMeta(kvs[0].Value)
	switch {
	case err != nil:
		return &CorruptError{Key: key, Hint: err.Error()}
	case m.Schema > schemaVersion:
		return fmt.Errorf("%w: %d, this version knows %d", ErrSchema, m.Schema, schemaVersion)
	case c.o.ClusterID != "" && c.o.ClusterID != m.ClusterID:
		return fmt.Errorf("%w: it is %s, want %s", ErrOtherCluster, m.ClusterID, c.o.ClusterID)
	case c.o.Incarnation != "" && c.o.Incarnation != m.Incarnation:
		return fmt.Errorf("%w: its incarnation is %s, want %s", ErrOtherCluster, m.Incarnation, c.o.Incarnation)
	}
	return nil
}

// NewID returns a new unique id in the form that Kafka uses for cluster ids: 22
// characters of URL-safe base64, never starting with a dash.
func NewID() string {
	for {
		if s := topicID(uuid.New()).String(); s[0] != '-' {
			return s
		}
	}
}

// Close stops following and, when it was started here, etcd. Sessions are not
// closed: close them first.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.moves.mu.Lock() // so that no worker starts after the wait below
		c.cancel()
		c.moves.mu.Unlock()
		c.wg.Wait()
		c.mu.Lock()
		c.lagging = ErrClosed
		close(c.changed) // and not replaced: Wait sees ErrClosed
		c.mu.Unlock()
		c.err = c.disconnect()
	})
	return c.err
}

// begin keeps Close from stopping etcd until c.wg.Done; false when it has begun.
func (c *Client) begin() bool {
	c.moves.mu.Lock()
	defer c.moves.mu.Unlock()
	if c.run.Err() != nil {
		return false
	}
	c.wg.Add(1)
	return true
}

// Image returns the newest image. It is never nil.
func (c *Client) Image() *Image { return c.image.Load() }

// Wait returns the newest image as soon as its revision is higher than after.
func (c *Client) Wait(ctx context.Context, after int64) (*Image, error) {
	for {
		c.mu.Lock()
		changed, closed := c.changed, errors.Is(c.lagging, ErrClosed)
		c.mu.Unlock()
		if img := c.image.Load(); img.revision > after {
			return img, nil
		}
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// seen waits until this node's image contains a revision, so that callers read
// what they wrote. The change is committed whatever happens here.
func (c *Client) seen(ctx context.Context, revision int64) {
	// An ended context or a closed client only means that the caller looks early.
	_, _ = c.Wait(ctx, revision-1)
}

// publish makes an image the newest one and wakes those who wait.
func (c *Client) publish(img *Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.image.Store(img)
	c.lagging = nil
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Client) setLagging(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lagging = err
}

// NormalizeStatic puts a process's settings under broker names: a topic setting
// (retention.ms) becomes the broker setting behind it (log.retention.ms) unless
// that one is given too.
func NormalizeStatic(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	maps.Copy(out, m)
	for k, v := range m {
		d := topicDefs[k]
		if d == nil || len(d.Synonyms) == 0 || d.Synonyms[0].Name == k {
			continue
		}
		delete(out, k)
		if _, given := m[d.Synonyms[0].Name]; !given {
			out[d.Synonyms[0].Name] = v
		}
	}
	return out
}

// CheckSetting checks one setting of a process under the name of a topic or a
// broker setting. The error is a *ConfigError.
func CheckSetting(name, value string) error {
	d := topicDefs[name]
	if d == nil {
		d = brokerDefs[name]
	}
	if d == nil {
		return &ConfigError{Key: name, Value: value, Msg: "Unknown config name: " + clip(name)}
	}
	return d.Validate(value)
}
