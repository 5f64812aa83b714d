package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierbroker/tierbroker/frame"
)

var (
	// ErrNotEmpty: a restore was to fill an etcd that holds something already.
	ErrNotEmpty = errors.New("etcd is not empty")
	// ErrRestoring: a restore into this etcd has begun and is not finished.
	ErrRestoring = errors.New("etcd is being filled by a restore that is not finished")
)

// RestoreMark stands in etcd from the first to the last write of a restore. While it is
// there no Client starts, and the same restore may go on.
type RestoreMark struct {
	ClusterID   string `json:"clusterId"`
	Incarnation string `json:"incarnation"` // of the cluster that is being made
	From        string `json:"from"`        // incarnation that the bucket had when the restore began
	StartedAt   int64  `json:"startedAt"`   // ms since 1970
}

// Seed is the state that a restore writes.
type Seed struct {
	// Topics need Name, ID, Partitions, Overrides, Internal, Deleting, CreatedAt, DeletedAt
	// and Version.
	Topics  []*Topic
	Deleted []DeletedTopic
	// Configs are the dynamic settings by broker id; DefaultConfig: of all brokers.
	Configs        map[int32]map[string]string
	NextProducerID int64
	// Assignments say under which epochs partitions go on; nobody owns any.
	Assignments map[frame.PartitionID]Assignment
}

// Restoration is an etcd that a restore fills. Its calls may be repeated, also by another
// process after a crash. It is used by one goroutine.
type Restoration struct {
	c        *Client
	mark     *RestoreMark
	value    string // of the mark, as it is stored
	revision int64  // of etcd, at the last write
}

// OpenRestoration connects to etcd, or starts the embedded one, and looks what it holds: nothing,
// or an unfinished restore (see Mark). ErrNotEmpty: anything else. Nothing is written.
func OpenRestoration(ctx context.Context, o Options) (*Restoration, error) {
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	c := &Client{o: o, keys: schema{o.Prefix}, changed: make(chan struct{})}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	c.run, c.cancel = context.WithCancel(context.Background())
	r := &Restoration{c: c}
	if err := r.look(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close ends the connection, and stops the embedded etcd.
func (r *Restoration) Close() error { return r.c.Close() }

// Mark returns the unfinished restore that was found or begun, nil when etcd is empty.
func (r *Restoration) Mark() *RestoreMark { return r.mark }

// Revision is etcd's revision at the last write; nothing that Write wrote is newer.
func (r *Restoration) Revision() int64 { return r.revision }

func (r *Restoration) look(ctx context.Context) error {
	g, err := r.c.get(ctx, "look for a restore", r.c.keys.restore())
	if err != nil {
		return err
	}
	if len(g.Kvs) > 0 {
		return r.found(g.Kvs[0].Value)
	}
	var any *clientv3.GetResponse
	err = r.c.retry(ctx, func() error {
		return r.c.do(ctx, "look whether etcd is empty", func(ctx context.Context) (err error) {
			any, err = r.c.etcd.Get(ctx, r.c.keys.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
			return err
		})
	})
	if err != nil {
		return err
	}
	if len(any.Kvs) == 0 {
		return nil
	}
	g, err = r.c.get(ctx, "read cluster record", r.c.keys.meta())
	if err != nil {
		return err
	}
	if len(g.Kvs) > 0 {
		if m, err := decodeMeta(g.Kvs[0].Value); err == nil {
			return fmt.Errorf("%w: it holds cluster %s", ErrNotEmpty, m.ClusterID)
		}
	}
	return fmt.Errorf("%w: there is a key %q", ErrNotEmpty, any.Kvs[0].Key)
}

func (r *Restoration) found(value []byte) error {
	var m RestoreMark
	if err := decodeRecord(value, &m); err != nil || m.ClusterID == "" || m.Incarnation == "" {
		return &CorruptError{Key: r.c.keys.restore(), Hint: "no mark of a restore"}
	}
	r.mark, r.value = &m, string(value)
	return nil
}

// Begin makes the cluster record, and the mark that keeps everybody else away. ErrNotEmpty: somebody
// was first.
func (r *Restoration) Begin(ctx context.Context, m RestoreMark) error {
	if r.mark != nil {
		return fmt.Errorf("%w: of incarnation %s", ErrRestoring, r.mark.Incarnation)
	}
	mark, err := encodeRecord(m)
	if err != nil {
		return err
	}
	meta, err := encodeRecord(Meta{ClusterID: m.ClusterID, Incarnation: m.Incarnation, Schema: schemaVersion, CreatedAt: m.StartedAt})
	if err != nil {
		return err
	}
	metaKey, key := r.c.keys.meta(), r.c.keys.restore()
	t, err := r.c.retryTxn(ctx, "begin restore",
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(metaKey), "=", 0), clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(metaKey, meta), clientv3.OpPut(key, mark)},
		[]clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return err
	}
	if !t.Succeeded {
		// Perhaps by an attempt of this call whose answer was lost.
		kvs := t.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || string(kvs[0].Value) != mark {
			return ErrNotEmpty
		}
	}
	r.mark, r.value, r.revision = &m, mark, t.Header.Revision
	return nil
}

// Bounds of one transaction: an etcd of others takes 128 operations and 1.5 MiB by default.
const (
	seedOps   = 100
	seedBytes = 1 << 20
)

// Write makes the state what the seed says; what an earlier attempt has written goes first. progress is told
// how many of how many keys are written; nil: nobody listens. ErrTopicCollision, ErrConflict (the restore was
// finished, or another one has begun), ErrUnavailable.
func (r *Restoration) Write(ctx context.Context, s *Seed, progress func(done, all int)) error {
	puts, err := r.puts(s)
	if err != nil {
		return err
	}
	clear := make([]clientv3.Op, 0, 6)
	for _, folder := range []string{keyTopics, keyNames, keyDeleted, keyAssign, "config/"} {
		clear = append(clear, clientv3.OpDelete(r.c.keys.prefix+folder, clientv3.WithPrefix()))
	}
	if err := r.guarded(ctx, append(clear, clientv3.OpDelete(r.c.keys.producers()))); err != nil {
		return err
	}
	for from := 0; from < len(puts); {
		to, size := from, 0
		for to < len(puts) && to-from < seedOps && size < seedBytes {
			size += len(puts[to].KeyBytes()) + len(puts[to].ValueBytes())
			to++
		}
		if err := r.guarded(ctx, puts[from:to]); err != nil {
			return err
		}
		from = to
		if progress != nil {
			progress(from, len(puts))
		}
	}
	return nil
}

// guarded makes changes while the mark is this restore's.
func (r *Restoration) guarded(ctx context.Context, ops []clientv3.Op) error {
	if r.mark == nil {
		return errors.New("the restore has not begun")
	}
	t, err := r.c.retryTxn(ctx, "restore cluster state", []clientv3.Cmp{clientv3.Compare(clientv3.Value(r.c.keys.restore()), "=", r.value)}, ops, nil)
	if err != nil {
		return err
	}
	if !t.Succeeded {
		return fmt.Errorf("restore cluster state: %w: the mark of the restore is gone", ErrConflict)
	}
	r.revision = t.Header.Revision
	return nil
}

// puts returns the keys and values of a seed, in an order that depends on it alone.
func (r *Restoration) puts(s *Seed) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	put := func(key string, v any) error {
		value, err := encodeRecord(v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		ops = append(ops, clientv3.OpPut(key, value))
		return nil
	}
	k := r.c.keys
	names := map[string]string{}
	for _, t := range s.Topics {
		if by, taken := names[foldName(t.Name)]; taken {
			return nil, nameTaken(t.Name, by)
		}
		names[foldName(t.Name)] = t.Name
		if err := errors.Join(put(k.topic(t.ID), t.record()), put(k.name(t.Name), nameRecord{ID: t.ID, Name: t.Name})); err != nil {
			return nil, err
		}
	}
	for _, d := range s.Deleted {
		if err := put(k.deleted(d.ID), d); err != nil {
			return nil, err
		}
	}
	for id, m := range s.Configs {
		if err := put(k.brokerConfig(id), m); err != nil {
			return nil, err
		}
	}
	if s.NextProducerID > 0 {
		ops = append(ops, clientv3.OpPut(k.producers(), strconv.FormatInt(s.NextProducerID, 10)))
	}
	list := make([]idEntry, 0, len(s.Assignments))
	for id, a := range s.Assignments {
		list = append(list, idEntry{id, entry{Assignment: a}})
	}
	slices.SortFunc(list, func(a, b idEntry) int { return a.id.Compare(b.id) })
	for n, part := range slices.Collect(slices.Chunk(list, ShardPartitions)) {
		sh := &shard{number: uint32(n)}
		sh.rebuild(part)
		ops = append(ops, clientv3.OpPut(k.shard(sh.number), string(sh.encode())))
	}
	return ops, nil
}

// Finish takes the mark away: from now on clients may start. A restore that is finished already is fine.
func (r *Restoration) Finish(ctx context.Context) error {
	if r.mark == nil {
		return nil
	}
	key := r.c.keys.restore()
	t, err := r.c.retryTxn(ctx, "finish restore", []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", r.value)},
		[]clientv3.Op{clientv3.OpDelete(key)}, []clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return err
	}
	if !t.Succeeded && len(t.Responses[0].GetResponseRange().Kvs) > 0 {
		return fmt.Errorf("finish restore: %w", ErrConflict)
	}
	r.mark = nil
	return nil
}

// restoring refuses an etcd that a restore is filling.
func (c *Client) restoring(ctx context.Context) error {
	g, err := c.get(ctx, "look for a restore", c.keys.restore())
	if err != nil {
		return err
	}
	if len(g.Kvs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: run the same restore again, with the same bucket and target", ErrRestoring)
}

// TopicNamesCollide reports whether two topics can't have these names at the same time: they are the
// same, or differ in '.' and '_' only.
func TopicNamesCollide(a, b string) bool { return foldName(a) == foldName(b) }
