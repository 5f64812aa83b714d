package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
)

// maxAttempts bounds how often one change is tried again because another writer
// was first. Writers of one process are merged, so that this means as many other
// processes in a row.
const maxAttempts = 64

// parallelShards is how many shards one call writes at a time.
const parallelShards = 8

// edit changes a private copy of a shard. It returns how many entries it changed
// and which partitions lost; it runs again when another writer was first.
type edit func(s *shard) (changed int, lost []frame.PartitionID)

// editShard changes one shard by compare-and-swap on its mod revision, and with a
// term also on the controller's election key. It starts from the mirrored value,
// so that the usual case is one request; nobody is told to have lost by a value
// that may be old.
func (c *Client) editShard(ctx context.Context, n uint32, term *Term, change edit) (revision int64, lost []frame.PartitionID, err error) {
	s, ok := c.Image().shards.get(n)
	if !ok {
		s = &shard{number: n}
	}
	fresh := false
	for range maxAttempts {
		next := s.clone()
		changed, lost := change(next)
		if len(lost) > 0 && !fresh {
			if s, err = c.readShard(ctx, n); err != nil {
				return 0, nil, err
			}
			fresh = true
			continue
		}
		if changed == 0 {
			return 0, lost, nil
		}
		r, err := c.writeShard(ctx, s, next, term)
		if err != nil {
			return 0, nil, err
		}
		if r.Succeeded {
			return r.Header.Revision, lost, nil
		}
		if s, err = shardAnswer(n, c.keys.shard(n), r); err != nil {
			return 0, nil, err
		}
		fresh = true
		if term != nil && len(r.Responses[1].GetResponseRange().Kvs) == 0 {
			return 0, nil, ErrNotLeader
		}
	}
	return 0, nil, fmt.Errorf("change assignments: %w", ErrConflict)
}

// writeShard tries one swap. Repeating it after a lost answer is safe: the second
// attempt fails the comparison and the caller finds its own change done.
func (c *Client) writeShard(ctx context.Context, old, next *shard, term *Term) (*clientv3.TxnResponse, error) {
	key := c.keys.shard(old.number)
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", old.revision)}
	otherwise := []clientv3.Op{clientv3.OpGet(key)}
	if term != nil {
		cmps = append(cmps, term.guard())
		// The key names a lease, so a later term of another node has another key.
		otherwise = append(otherwise, clientv3.OpGet(term.key))
	}
	then := clientv3.OpDelete(key)
	if len(next.runs) > 0 {
		then = clientv3.OpPut(key, string(next.encode()))
	}
	return c.retryTxn(ctx, "change assignments", cmps, []clientv3.Op{then}, otherwise)
}

func shardAnswer(n uint32, key string, r *clientv3.TxnResponse) (*shard, error) {
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return &shard{number: n}, nil
	}
	s, err := decodeShard(n, kvs[0].ModRevision, kvs[0].Value)
	if err != nil {
		return nil, &CorruptError{Key: key, Hint: err.Error()}
	}
	return s, nil
}

func (c *Client) readShard(ctx context.Context, n uint32) (*shard, error) {
	key := c.keys.shard(n)
	r, err := c.get(ctx, "read assignments", key)
	if err != nil {
		return nil, err
	}
	if len(r.Kvs) == 0 {
		return &shard{number: n}, nil
	}
	s, err := decodeShard(n, r.Kvs[0].ModRevision, r.Kvs[0].Value)
	if err != nil {
		return nil, &CorruptError{Key: key, Hint: err.Error()}
	}
	return s, nil
}

// Apply makes the controller's changes. Each is compared with the assignment it was
// planned on; those that lost are in the *FencedError, all others were made.
// ErrNotLeader: the term has ended and nothing more was changed. When Apply
// returns, the image contains what it did.
func (t *Term) Apply(ctx context.Context, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := t.barrier(ctx); err != nil {
		return err
	}
	groups, lost := t.c.groupChanges(changes)
	var mu sync.Mutex
	var revision int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelShards)
	for n, list := range groups {
		g.Go(func() error {
			rev, l, err := t.c.editShard(gctx, n, t, func(s *shard) (int, []frame.PartitionID) {
				return applyChanges(s, list)
			})
			mu.Lock()
			defer mu.Unlock()
			revision, lost = max(revision, rev), append(lost, l...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.dirty.Store(true) // some may have been made unseen
		return err
	}
	if _, err := t.c.Wait(ctx, revision-1); err != nil {
		t.dirty.Store(true)
		return err
	}
	return fenced(lost)
}

// groupChanges finds the shard of each change: where the partition is, or for new
// ones where there is room, neighbours together.
func (c *Client) groupChanges(changes []Change) (groups map[uint32][]Change, lost []frame.PartitionID) {
	img := c.Image()
	groups = map[uint32][]Change{}
	var fresh []Change
	for _, ch := range changes {
		n, known := img.shardOf(ch.ID)
		switch {
		case known:
			groups[n] = append(groups[n], ch)
		case ch.Exists:
			lost = append(lost, ch.ID)
		default:
			fresh = append(fresh, ch)
		}
	}
	if len(fresh) == 0 {
		return groups, lost
	}
	slices.SortFunc(fresh, func(a, b Change) int { return a.ID.Compare(b.ID) })
	room := newRoom(img)
	for _, ch := range fresh {
		n := room.take()
		groups[n] = append(groups[n], ch)
	}
	return groups, lost
}

// room hands out places in shards, the fullest one with room first, so that few
// shards are touched and none stays half empty.
type room struct {
	open []openShard // fullest first
	next uint32      // number of a shard that does not exist
}

type openShard struct {
	n    uint32
	used int
}

func newRoom(img *Image) *room {
	r := &room{}
	for n, s := range img.shards.all() {
		r.next = max(r.next, n+1)
		if used := s.count(); used < ShardPartitions {
			r.open = append(r.open, openShard{n, used})
		}
	}
	slices.SortFunc(r.open, func(a, b openShard) int {
		return cmp.Or(-cmp.Compare(a.used, b.used), cmp.Compare(a.n, b.n))
	})
	return r
}

func (r *room) take() uint32 {
	if len(r.open) == 0 {
		r.open = append(r.open, openShard{n: r.next})
		r.next++
	}
	o := &r.open[0]
	n := o.n
	if o.used++; o.used >= ShardPartitions {
		r.open = r.open[1:]
	}
	return n
}

// applyChanges makes the controller's changes in a private copy of a shard.
func applyChanges(s *shard, list []Change) (changed int, lost []frame.PartitionID) {
	added := map[frame.PartitionID]entry{}
	removed := map[frame.PartitionID]bool{}
	for i := range list {
		ch := &list[i]
		e := s.find(ch.ID)
		switch {
		case e == nil && ch.Remove:
			// made already
		case e == nil && !ch.Exists:
			added[ch.ID] = entry{Assignment: ch.New}
			changed++
		case e == nil:
			lost = append(lost, ch.ID)
		case !ch.Remove && e.Assignment == ch.New:
			// made already
		case !ch.Exists || e.Assignment != ch.Old:
			// Also Safe and Warm: the owner or the target has changed them meanwhile, and
			// what was planned without them must neither be made nor undo them.
			lost = append(lost, ch.ID)
		case ch.Remove:
			removed[ch.ID] = true
			changed++
		case ch.New.Epoch < e.Epoch:
			lost = append(lost, ch.ID) // an epoch never falls
		default:
			e.Assignment = ch.New
			changed++
		}
	}
	if len(added) > 0 || len(removed) > 0 {
		all := slices.DeleteFunc(s.list(), func(e idEntry) bool { return removed[e.id] })
		for id, e := range added {
			all = append(all, idEntry{id, e})
		}
		s.rebuild(all)
	}
	return changed, lost
}
