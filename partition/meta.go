package partition

import (
	"encoding/json"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
)

// meta is what the index keeps of a partition besides its entries, so that a restart needs no bucket: the offsets
// that entries alone don't tell, the epoch history, and a summary of the head. Its reader ignores unknown fields;
// losing it loses nothing that log and bucket don't hold.
type meta struct {
	Topic       string       `json:"topic"`
	Epoch       int32        `json:"epoch"`
	Start       int64        `json:"start"`
	Next        int64        `json:"next"` // everything below it is in the log behind the checkpoint's entries, in the bucket, or void
	Local       int64        `json:"local"`
	Tiered      int64        `json:"tiered"`
	Ceiling     int64        `json:"ceiling"`
	Epochs      []EpochStart `json:"epochs,omitempty"`
	HeadVersion int64        `json:"head_version,omitempty"`
	HeadStart   int64        `json:"head_start,omitempty"`
	HeadKnown   bool         `json:"head_known,omitempty"`
	Extents     int          `json:"extents,omitempty"`
	Archived    int64        `json:"archived,omitempty"`
	Async       bool         `json:"async,omitempty"`
	Object      bool         `json:"object,omitempty"` // and what the bucket lacks was never acknowledged
	Jump        bool         `json:"jump,omitempty"`
	Rebooted    bool         `json:"rebooted,omitempty"`
	JumpFrom    uint64       `json:"jump_from,omitempty"`
}

// maxMeta caps what is read back: an epoch entry is well under 100 bytes.
const maxMeta = 16 << 20

// encodeMeta returns the metadata, and the head when it has changed since it was last stored. The commit loop calls
// it while it builds a batch.
func (p *Partition) encodeMeta() (metadata, head []byte) {
	p.mu.Lock()
	m := meta{
		Topic: p.Topic(), Epoch: p.epoch, Start: max(p.start, p.noting), Next: p.stored, Local: p.local, Tiered: p.tiered, Ceiling: p.ceiling,
		Epochs: p.epochs, HeadVersion: p.headVersion, HeadStart: p.headStart, HeadKnown: p.headKnown, Extents: p.extents, Archived: p.archived,
		Async: p.async, Object: p.isSafe() || p.wasObject, Jump: p.jump || p.atRisk, Rebooted: p.rebooted, JumpFrom: p.jumpFrom,
	}
	b, err := json.Marshal(&m)
	head, p.headDirty = p.headDirty, nil
	p.mu.Unlock()
	if err != nil {
		panic(err) // integers and strings always encode
	}
	return b, head
}

// loadMeta makes the partition that the index remembers.
func (s *Set) loadMeta(id frame.PartitionID, b []byte) error {
	if len(b) > maxMeta {
		return fmt.Errorf("%w: metadata of %s has %d bytes", ErrCorrupt, id, len(b))
	}
	var m meta
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("%w: metadata of %s: %w", ErrCorrupt, id, err)
	}
	if m.Start < 0 || m.Tiered < 0 || m.Next < 0 || m.Local < 0 || m.Ceiling < 0 {
		return fmt.Errorf("%w: metadata of %s has a negative offset", ErrCorrupt, id)
	}
	p := newPartition(s, id, m.Topic)
	p.epoch, p.start, p.tiered, p.ceiling = m.Epoch, m.Start, m.Tiered, max(m.Ceiling, firstCeiling)
	p.epochs, p.headVersion, p.headKnown, p.extents, p.archived = m.Epochs, m.HeadVersion, m.HeadKnown, m.Extents, m.Archived
	// Behind the checkpoint there may be batches that the bucket has already, and that aren't to be left out as known.
	p.next, p.local, p.startSaved = m.Next, m.Local, m.Start
	if m.Start > m.HeadStart {
		p.startSaved = m.HeadStart // the note may have failed: prepare writes it (again) before anybody sees the start
	}
	p.stored, p.jump, p.async, p.asyncSaved, p.rebooted = p.next, m.Jump, m.Async, m.Async, m.Rebooted
	p.jumpFrom, p.headStart, p.wasObject = m.JumpFrom, m.HeadStart, m.Object
	s.parts[id] = p
	return nil
}
