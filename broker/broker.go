package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/tierbroker/tierbroker/kafka"
)

// Options of a Broker. Zero values take the defaults given.
type Options struct {
	ID         int32 // this broker's id
	Partitions Partitions
	Cluster    ClusterState
	Admin      ClusterAdmin
	Metrics    Metrics          // default: counts nobody reads
	Log        *zap.Logger      // default: no log
	Now        func() time.Time // default: time.Now
	// Advertised overrides, by listener name, the address under which clients of that listener see this broker.
	// A listener without an entry gets what the cluster's state says.
	Advertised map[string]Endpoint
	// Disk tells total and usable bytes of the data directory's file system; nil when unknown.
	Disk func() (total, usable int64, err error)
	// DataDir is the path that DescribeLogDirs names.
	DataDir string
	// LeaseValid tells whether this broker's lease lives for certain; nil: it always does. See lease.go.
	LeaseValid func() bool
	// InternalDurability is tierbroker.durability of the internal topics that this broker creates; empty: the default of topics.
	InternalDurability string

	MaxPartitions int32 // most partitions that one request may create; default 10,000

	FetchMaxBytes   int32         // default 55 MiB
	FetchSessions   int           // sessions kept; default 1000, negative for none
	SessionIdle     time.Duration // a session this long unused may be evicted; default 2 min
	ColdWorkers     int           // cold reads under way; default 16
	ColdWait        time.Duration // least time a fetch with nothing else waits for cold reads; default 500 ms
	ColdTimeout     time.Duration // deadline of one cold read or lookup; default 30 s
	MaxRequestTime  time.Duration // cap for timeouts that clients name; default 10 min
	MaxDecodeBytes  int64         // bodies that kmsg decodes at one time; default 8 MiB
	MaxWideBytes    int64         // memory of Produce and Fetch requests of very many partitions; default 96 MiB
	MaxMutePerReply time.Duration // most a producer's connection is held back for throttling; default 10 s
}

// Endpoint is an address that clients are told.
type Endpoint struct {
	Host string
	Port int32
}

func (o *Options) setDefaults() error {
	if o.Partitions == nil || o.Cluster == nil || o.Admin == nil {
		return errors.New("broker: Partitions, Cluster and Admin are required")
	}
	if o.Metrics == nil {
		o.Metrics = NewCounters()
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LeaseValid == nil {
		o.LeaseValid = func() bool { return true }
	}
	positive(&o.MaxPartitions, 10_000)
	positive(&o.FetchMaxBytes, 55<<20)
	positive(&o.SessionIdle, 2*time.Minute)
	positive(&o.ColdWorkers, 16)
	positive(&o.ColdWait, 500*time.Millisecond)
	positive(&o.ColdTimeout, 30*time.Second)
	positive(&o.MaxRequestTime, 10*time.Minute)
	positive(&o.MaxDecodeBytes, 8<<20)
	positive(&o.MaxWideBytes, 96<<20)
	positive(&o.MaxMutePerReply, 10*time.Second)
	if o.FetchSessions == 0 {
		o.FetchSessions = 1000
	}
	return nil
}

func positive[T int | int32 | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Broker answers Kafka requests. It is a kafka.Handler.
type Broker struct {
	o        Options
	table    map[int16]*api
	versions apiVersions
	metrics  Metrics
	log      *zap.Logger

	began  time.Time
	taken  sync.Map        // ids of topics whose partitions have all been taken up since the start, noted in the first moments only
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	decoding *semaphore.Weighted // bytes of bodies that kmsg decodes
	wide     *semaphore.Weighted // bytes of wide Produce and Fetch requests
	lookups  *semaphore.Weighted
	sessions *sessionCache
	cold     *coldPool
	ids      producerIDs
	groups   *coordinator
	creating creations

	produceCalls, fetchCalls sync.Pool // reused request states
}

// New returns a broker that is ready to answer. Close stops what it started.
func New(o Options) (*Broker, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	b := &Broker{o: o, metrics: o.Metrics, log: o.Log, table: map[int16]*api{}, began: o.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for i := range apis {
		b.table[apis[i].key] = &apis[i]
	}
	b.versions = computeVersions(apis)
	b.decoding = semaphore.NewWeighted(o.MaxDecodeBytes)
	b.wide = semaphore.NewWeighted(o.MaxWideBytes)
	b.lookups = semaphore.NewWeighted(int64(o.ColdWorkers))
	b.sessions = newSessionCache(o.FetchSessions, o.SessionIdle)
	b.cold = newColdPool(b.ctx, o.ColdWorkers, o.ColdTimeout)
	b.ids.init(o.Cluster)
	b.creating.init()
	b.produceCalls.New, b.fetchCalls.New = newProduceCall, newFetchCall
	b.groups = newCoordinator(b)
	b.tasks.Go(b.groups.follow)
	b.tasks.Go(b.groups.lag.loop)
	return b, nil
}

// Close ends the broker's own work: cold reads, topic creations, the coordination of groups. Requests should have ended before (kafka.Server's
// Shutdown); those that come later are answered with errors.
func (b *Broker) Close() {
	b.cancel()
	b.cold.close()
	b.tasks.Wait()
	b.groups.close()
	b.sessions.close()
}

// call is one request under way.
type call struct {
	*kafka.Request
	api *api
	// done gives the body's part of the budget back; nil when that was done.
	done func()
	// taken, of calls that wait for others, drops what the body was decoded to.
	taken func()
}

// finish ends the body's part in the budget.
func (c *call) finish() {
	if c.done != nil {
		c.done()
		c.done = nil
	}
}

// Handle takes a request from a connection; see kafka.Handler.
func (b *Broker) Handle(ctx context.Context, r *kafka.Request) kafka.Pending {
	a := b.table[r.Key]
	if a == nil {
		return hangUp(fmt.Errorf("%s is not supported", kmsg.NameForKey(r.Key)))
	}
	c := &call{Request: r, api: a}
	if r.Version < a.min || r.Version > a.max {
		if r.Key == int16(kmsg.ApiVersions) {
			return b.unsupportedApiVersions()
		}
		return hangUp(fmt.Errorf("%s version %d is not supported (%d to %d are)", a.name, r.Version, a.min, a.max))
	}
	if a.maxBody > 0 && len(r.Body) > a.maxBody {
		return hangUp(fmt.Errorf("%s of %d bytes is larger than the limit of %d", a.name, len(r.Body), a.maxBody))
	}
	return a.handle(b, ctx, c)
}

// hangUp closes the connection, as Kafka does for what has no answer.
func hangUp(err error) kafka.Pending { return kafka.Done{None: true, Close: err} }

// answerer does the work of an API that kmsg decodes and gives its response.
type answerer[R any] func(b *Broker, ctx context.Context, c *call, req R) kmsg.Response

// viaKmsg makes a handler of an answerer: it decodes in Handle and works in Wait.
func viaKmsg[T any, R interface {
	*T
	kmsg.Request
}](answer answerer[R]) handler {
	return func(b *Broker, ctx context.Context, c *call) kafka.Pending {
		req := R(new(T))
		req.SetVersion(c.Version)
		done, err := b.decode(ctx, c, req)
		if err != nil {
			return hangUp(err)
		}
		return kafka.PendingFunc(func(ctx context.Context) kafka.Response {
			c.done = done
			defer c.finish()
			resp := answer(b, ctx, c, req)
			resp.SetVersion(c.Version)
			return kafka.Response{Bufs: net.Buffers{resp.AppendTo(nil)}}
		})
	}
}

// decode has kmsg read a body. kmsg checks counts against the body, but what a body of empty elements decodes to is
// still some tens of times its size: see admitBody.
func (b *Broker) decode(ctx context.Context, c *call, req kmsg.Request) (done func(), err error) {
	done, err = b.admitBody(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := req.ReadFrom(c.Body); err != nil {
		done()
		return nil, fmt.Errorf("malformed %s version %d: %w", c.api.name, c.Version, err)
	}
	return done, nil
}

// minAdminTime is what a change of the cluster gets at least, whatever timeout the client names: some name 0 and still
// expect the change to be made.
const minAdminTime = 5 * time.Second

// timeout bounds a request's work by what the client asked for, within limits.
func (b *Broker) timeout(ctx context.Context, ms int32) (context.Context, context.CancelFunc) {
	d := time.Duration(ms) * time.Millisecond
	return context.WithTimeout(ctx, min(max(d, minAdminTime), b.o.MaxRequestTime))
}

// failed counts an error code and gives it back.
func (b *Broker) failed(c *call, code int16) int16 {
	if code != 0 {
		b.metrics.Failed(c.Key, code)
	}
	return code
}

// fail turns an error into a code, counts it, and logs what has no code: that is a fault of ours.
func (b *Broker) fail(c *call, what string, err error) int16 {
	k := code(err)
	if k == -1 {
		b.log.Warn("request failed without a Kafka error", zap.String("api", c.api.name), zap.String("on", what), zap.Error(err))
	}
	return b.failed(c, k)
}
