package partition

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

// checkpointExtra is stored beside the checkpoint: which boot of the machine wrote it, and whether the log was closed.
// Active is the first position of the file that the log began when it was opened: that file, or a newer one, exists until the next
// start. Empty and Lossy are questions that the first image of the cluster answers (settleDoubt).
type checkpointExtra struct {
	Boot   string `json:"boot"`
	Clean  bool   `json:"clean"`
	Active uint64 `json:"active,omitempty"`
	Empty  bool   `json:"empty,omitempty"`
	Lossy  bool   `json:"lossy,omitempty"`
}

// checkpointExtra encodes what goes beside the next checkpoint. It is written with each of them and seldom changes, so
// the commit loop keeps the bytes.
func (s *Set) checkpointExtra(clean bool) []byte {
	x := checkpointExtra{Boot: s.o.BootID, Clean: clean, Active: s.active, Empty: s.empty.Load(), Lossy: s.lossy.Load()}
	if s.extraBytes != nil && x == s.extra {
		return s.extraBytes
	}
	s.extra, s.extraBytes = x, x.encode()
	return s.extraBytes
}

func (x checkpointExtra) encode() []byte {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err) // a string and bools always encode
	}
	return b
}

// rebooted says whether records that were only in the page cache may be gone: the machine has restarted since the
// log was last open, and nobody closed the log before that.
func (s *Set) rebooted(extra []byte, ok bool, found segment.Recovered) bool {
	var x checkpointExtra
	if !ok || json.Unmarshal(extra, &x) != nil {
		return found.End > found.Start // unknown: assume the worst when there is data
	}
	return !x.Clean && x.Boot != s.o.BootID
}

// missingFile says whether the newest file of a log that nobody has closed is gone. It may have held what was acknowledged.
func missingFile(extra []byte, ok bool, found *segment.Recovered) (first uint64, gone bool) {
	var x checkpointExtra
	if !ok || json.Unmarshal(extra, &x) != nil || x.Clean || x.Active > math.MaxInt64 {
		return 0, false
	}
	return x.Active, found.Newest < x.Active
}

// doubt notes what may be missing without any trace: after a restart of the machine, partitions of which nothing was
// synced yet; in a new directory, all that its predecessor held.
func (s *Set) doubt(extra []byte, ok, newDir bool) {
	var x checkpointExtra
	if ok && json.Unmarshal(extra, &x) == nil {
		s.empty.Store(x.Empty)
		s.lossy.Store(x.Lossy)
	}
	if newDir || s.cut {
		s.empty.Store(true)
	}
	if s.recovered.Rebooted || !ok { // without an index nobody knows
		s.lossy.Store(true)
	}
}

// newDir says whether the log's directory holds nothing at all, before it is opened.
func (s *Set) newDir() (bool, error) {
	fs := s.o.Log.FS
	if fs == nil {
		fs = segment.OSFS{}
	}
	files, err := fs.List(s.o.Log.Dir)
	if err != nil {
		return false, fmt.Errorf("list the commit log: %w", err)
	}
	return len(files) == 0, nil
}

// Settle answers what a restart of the machine, or an empty directory, leaves open, with an image from before this
// incarnation was made known: only what the cluster held then can be missing. Without it the first image that Apply gets
// answers, which may name partitions that an incarnation was given that died before it could begin with them. The answer
// is on disk when it returns.
func (s *Set) Settle(img *cluster.Image) error { return s.settleDoubt(img) }

// settleDoubt holds the first image against what is here. A partition that this broker has owned before and of which
// there is no trace must jump: clients may have seen records of it. The answer is on disk before anybody writes, since
// later a partition without a trace is one that has never been written to.
func (s *Set) settleDoubt(img *cluster.Image) error {
	empty, lossy := s.empty.Load(), s.lossy.Load()
	if !empty && !lossy {
		return nil
	}
	for id, a := range img.Assignments() {
		isNew := a.OwnerIncarnation == s.o.Incarnation && a.Epoch == firstEpoch
		t := img.TopicByID(id.Topic)
		if a.Owner != s.o.Broker || isNew || t == nil || t.Deleting || a.Safe {
			continue // what is safe is in the bucket
		}
		if p := s.Get(id); p == nil && (empty || t.Config.Durability == cluster.Async) {
			p = s.ensure(id, t.Name)
			p.mu.Lock()
			p.jump = true
			p.mu.Unlock()
			s.markDirty(p)
		}
	}
	if err := s.saveDirty(); err != nil {
		return err
	}
	s.empty.Store(false)
	s.lossy.Store(false)
	return s.secure()
}

// saveDirty has the metadata of changed partitions written to the index.
func (s *Set) saveDirty() error {
	return s.update(func(*index.Batch) error { return nil })
}

// secure has the metadata of changed partitions written to disk.
func (s *Set) secure() error {
	if err := s.saveDirty(); err != nil {
		return err
	}
	return s.index.Flush()
}

// secureAsync makes sure that the index says on disk that a partition is async before anything of it is acknowledged
// on that promise: a machine that loses its power must know afterwards that records may be missing.
func (s *Set) secureAsync(ps []*Partition) error {
	var unsaved []*Partition
	for _, p := range ps {
		p.mu.Lock()
		if p.asyncNext = true; !p.asyncSaved {
			p.async = true
			unsaved = append(unsaved, p)
		}
		p.mu.Unlock()
	}
	if len(unsaved) == 0 {
		return nil
	}
	for _, p := range unsaved {
		s.markDirty(p)
	}
	if err := s.secure(); err != nil {
		return err
	}
	for _, p := range unsaved {
		p.mu.Lock()
		p.asyncSaved = true
		p.mu.Unlock()
	}
	return nil
}
