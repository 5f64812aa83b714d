package partition

import (
	"context"
	"encoding/binary"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/segment"
)

// Control frames tell recovery what batches alone don't. Their payload is at most 21 bytes, so that the header's
// checksum covers it; what is longer goes into extensions.
//
//	epoch start    the epoch begins at the base offset; extensions: the topic's name, the start offset
//	  flagVoid     what lies between the partition's last batch and the base offset is void, and not missing
//	truncate       records at or above the new end are taken back; nobody writes these yet
//	drop partition nothing of the partition is left
const (
	flagVoid = 1

	extTopic = 1
	extStart = 2
)

func nameExtension(topic string) []frame.Extension {
	return []frame.Extension{{Type: extTopic, Value: []byte(topic)}}
}

// topicName returns the name in an epoch-start frame, "" when it has none.
func topicName(h *frame.Header) string {
	for _, e := range h.Extensions {
		if e.Type == extTopic {
			return string(e.Value)
		}
	}
	return ""
}

// startOffset returns the start offset in an epoch-start frame, 0 when it has none.
func startOffset(h *frame.Header) int64 {
	for _, e := range h.Extensions {
		if e.Type == extStart && len(e.Value) == 8 {
			return max(0, int64(binary.BigEndian.Uint64(e.Value)))
		}
	}
	return 0
}

// noteStart writes into the log, durably, that the start offset will be at least start. The bucket has it, too, but a
// restart goes by what is local, and a start that somebody saw never goes back: so the note comes first.
func (p *Partition) noteStart(ctx context.Context, start int64) error {
	p.mu.Lock()
	saved := p.startSaved
	h := frame.Header{Type: frame.EpochStart, ID: p.id, Epoch: p.epoch, BaseOffset: p.next, AppendTime: p.set.o.Now(),
		Extensions: append(nameExtension(p.Topic()), frame.Extension{Type: extStart, Value: binary.BigEndian.AppendUint64(nil, uint64(start))})}
	p.noting = max(p.noting, start)
	p.mu.Unlock()
	if saved >= start {
		return nil
	}
	// A checkpoint that passes the note comes with metadata that has it.
	p.set.markDirty(p)
	log := p.set.log
	pos, gen, err := log.Enqueue(&segment.Entry{Header: h, Sync: true})
	if err == nil {
		err = log.Written(pos, gen)
	}
	if err == nil {
		err = log.Sync(ctx)
	}
	if err != nil {
		return storageError(err)
	}
	p.mu.Lock()
	p.startSaved = max(p.startSaved, start)
	p.mu.Unlock()
	return nil
}

// raiseStart makes the start offset of the head the partition's. When the log can't take the note, the start stays and
// maintenance tries again.
func (p *Partition) raiseStart(ctx context.Context) error {
	p.mu.Lock()
	to := p.headStart
	p.mu.Unlock()
	if err := p.noteStart(ctx, to); err != nil {
		return err
	}
	p.mu.Lock()
	p.setStart(to)
	p.mu.Unlock()
	p.set.markDirty(p)
	return nil
}

// setStart raises the start offset to one that is noted. The caller holds p.mu.
func (p *Partition) setStart(to int64) {
	if to <= p.start {
		return
	}
	p.start = to
	for len(p.epochs) > 1 && p.epochs[1].Start <= to {
		p.epochs = p.epochs[1:] // nothing of the first one is left
	}
	p.wake()
}
