package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// EmbeddedOptions describe the etcd that runs inside this process. Unless ClientListen
// or Members say otherwise it has one member and no listener: no port is taken,
// clients are in the process.
type EmbeddedOptions struct {
	Dir string // data directory, made when missing; one process at a time
	// QuotaBytes bounds the database; default 1 GiB. Beyond it etcd refuses writes
	// until compaction and defragmentation, which run by themselves, made room.
	QuotaBytes int64
	// KeepRevisions is how much history compaction leaves for watches that lag;
	// default 1,000.
	KeepRevisions int64
	// MinFreeBytes is the free space of the disk below which new topics and settings
	// are refused with ErrUnavailable; default 24 MiB.
	MinFreeBytes int64
	// Logger gets etcd's warnings and errors; nil: none.
	Logger *zap.Logger
	// StartTimeout bounds the wait for a member that stands alone; default 60 s. A
	// member of a quorum waits for the others as long as the context lets it.
	StartTimeout time.Duration

	// ClientListen is the address (HOST:PORT) for clients in other processes; empty:
	// none.
	ClientListen string
	// Name is this member's name in Members.
	Name string
	// Members are all members of the quorum, this one too; none: it stands alone. They
	// are what a new cluster begins with; afterwards the etcd knows its members.
	Members []Member
	// TLS is for both listeners and for what this member asks of the others; nil: plain.
	TLS *ServerTLS
}

// Embedded is a running etcd member.
type Embedded struct {
	dir     string
	minFree int64
	guard   *guard
	etcd    *embed.Etcd
	client  *clientv3.Client
	lock    *os.File
	once    sync.Once
	err     error
}

// walOnce sets the size of etcd's log files, a variable of the whole process: 64
// MB twice is much for a database of a few.
var walOnce sync.Once

const walSegmentBytes = 16 << 20

// memberDir is etcd's own directory, below that of EmbeddedOptions.
const memberDir = "member"

// unbornDir is where memberDir is for a moment that is removed, because its first start was killed.
const unbornDir = "member.unborn"

// StartEmbedded starts etcd and returns when it serves. ErrInUse: another process
// has the directory. ErrDamaged: its files are. ErrStopped: etcd gave up; what it
// had begun stays in the process, which should end.
func StartEmbedded(ctx context.Context, o EmbeddedOptions) (*Embedded, error) {
	walOnce.Do(func() { wal.SegmentSizeBytes = walSegmentBytes })
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	e := &Embedded{dir: o.Dir, minFree: defaultTo(o.MinFreeBytes, int64(defaultMinFree)), guard: newGuard(), lock: lock}
	if err := e.checkFiles(len(o.Members) < 2); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	config := embeddedConfig(o, e.guard)
	if err := o.listen(ctx, config); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if e.etcd, err = e.guard.start(config); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", o.Dir, err), lock.Close())
	}
	limit := defaultTo(o.StartTimeout, time.Minute)
	if len(o.Members) > 1 {
		limit = 1 << 62 // others may start whenever they are started
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-e.etcd.Server.ReadyNotify():
	case err = <-e.etcd.Err():
	case <-e.guard.failed:
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", o.Dir, e.guard.err), lock.Close())
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = ErrUnavailable
	}
	if err != nil {
		e.etcd.Close()
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", o.Dir, err), lock.Close())
	}
	e.client = v3client.New(e.etcd.Server)
	e.reserve()
	return e, nil
}

// reserve gives the database file the disk space for its whole size. The file is sparse, and
// etcd ends the process when one of its pages finds no space on a full disk. This is a
// precaution: a disk that is full already, or that can't reserve, leaves things as they are.
func (e *Embedded) reserve() {
	f, err := os.OpenFile(e.dbPath(), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size())
	}
}

// Client returns a client of the member. It is closed with the member.
func (e *Embedded) Client() *clientv3.Client { return e.client }

// Err reports when the member stops by itself.
func (e *Embedded) Err() <-chan error { return e.etcd.Err() }

// Close stops the member. Everything committed is on disk. One that has stopped by
// itself can't be closed; there is no error then, since it was told before.
func (e *Embedded) Close() error {
	e.once.Do(func() {
		if e.guard.failure() != nil {
			e.err = e.lock.Close()
			return
		}
		if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			e.err = fmt.Errorf("close etcd client: %w", err)
		}
		closed := make(chan struct{})
		go func() { e.etcd.Close(); close(closed) }()
		select {
		case <-closed:
		case <-e.guard.failed: // now, of all times
		}
		e.err = errors.Join(e.err, e.lock.Close())
	})
	return e.err
}

// lockDir makes a second process fail at once; etcd itself would wait for ever.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock etcd directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("lock etcd directory %s: %w", dir, err), f.Close())
	}
	return f, nil
}

func embeddedConfig(o EmbeddedOptions, g *guard) *embed.Config {
	c := embed.NewConfig()
	c.Name = "tierbroker"
	c.Dir = filepath.Join(o.Dir, memberDir)
	// No listener at all: clients are in the process and there are no peers. The
	// advertised URLs are recorded in the member list and never dialed.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.InitialCluster = c.Name + "=http://127.0.0.1:1"
	c.InitialClusterToken = "tierbroker"
	// A single member elects itself after one to five ticks: short ones make a
	// start quick, and none of them is ever needed again.
	c.TickMs, c.ElectionMs = 50, 250
	c.QuotaBackendBytes = defaultTo(o.QuotaBytes, int64(1<<30))
	c.AutoCompactionMode = embed.CompactorModeRevision
	c.AutoCompactionRetention = strconv.FormatInt(defaultTo(o.KeepRevisions, int64(1000)), 10)
	// Raft entries since the last snapshot stay in memory, and a shard is some
	// kilobytes: keep few.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 1000, 100
	c.MaxSnapFiles, c.MaxWalFiles = 2, 2
	c.BootstrapDefragThresholdMegabytes = 64
	c.MaxTxnOps = 512
	c.EnableGRPCGateway = false
	c.PreVote = true
	lg := o.Logger
	if lg == nil {
		lg = zap.NewNop()
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(g.watch(quiet(lg)))
	c.LogLevel = "warn"
	return c
}

// quiet lets warnings and errors pass, and of the warnings only those that tell an
// operator something: etcd warns about its own defaults at every start.
func quiet(lg *zap.Logger) *zap.Logger {
	return lg.Named("etcd").WithOptions(
		zap.IncreaseLevel(zap.WarnLevel),
		zap.WrapCore(func(c zapcore.Core) zapcore.Core { return &quietCore{c} }),
	)
}

type quietCore struct{ zapcore.Core }

var routine = []string{
	"simple token is not cryptographically signed",
	"Running http and grpc server on single port",
	"it isn't recommended to use default name",
	"apply request took too long",
	"exceeded recommended request limit",
	"leader is overloaded likely from slow disk",
	"failed to reach the peer URL",
}

// parting are what etcd says, some of them as errors, when its listeners are closed with it.
var parting = []string{"setting up serving from embedded etcd failed", "secure grpc server due to error"}

// newborn are what etcd says, one of them as an error, when it looks at a data directory before its first snapshot.
var newborn = []string{"Failed to detect schema version", "failed to update storage version"}

// Check drops routine warnings, and what guard tells.
func (c *quietCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level >= zap.DPanicLevel {
		return ce
	}
	says := func(s string) bool { return strings.Contains(e.Message, s) }
	if slices.ContainsFunc(newborn, says) || slices.ContainsFunc(parting, says) || e.Level == zap.WarnLevel && slices.ContainsFunc(routine, says) {
		return ce
	}
	return c.Core.Check(e, ce)
}

// With keeps the filter on derived loggers.
func (c *quietCore) With(f []zapcore.Field) zapcore.Core { return &quietCore{c.Core.With(f)} }

func defaultTo[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
