package cluster

import "encoding/binary"

// Flags in the first byte of an entry's extension.
const (
	flagJump    = 0x01 // Assignment.Jump
	flagUnready = 0x02 // Assignment.Unready and UnreadyAt follow
	flagPlaced  = 0x04 // Assignment.Placed
	knownFlags  = flagJump | flagUnready | flagPlaced
)

// extension returns the bytes to store: more flags, what they announce, then what this version does not know.
func (e *entry) extension() []byte {
	var flags byte
	if e.Jump {
		flags |= flagJump
	}
	if e.Placed {
		flags |= flagPlaced
	}
	var more [2 * binary.MaxVarintLen64]byte
	n := 0
	if e.UnreadyAt > 0 && len(e.ext)+len(more) <= maxExtension { // it may be forgotten
		flags |= flagUnready
		n = binary.PutUvarint(more[:], uint64(int64(e.Unready)+1))
		n += binary.PutUvarint(more[n:], uint64(e.UnreadyAt))
	}
	if flags == 0 {
		return e.ext
	}
	ext := append(make([]byte, 0, 1+n+len(e.ext)), flags)
	ext = append(ext, more[:n]...)
	if len(e.ext) > 0 {
		ext[0] |= e.ext[0]
		ext = append(ext, e.ext[1:]...)
	}
	return ext
}

// extension takes over stored bytes; b is not kept.
func (d *decoder) extension(e *entry, b []byte) {
	if len(b) == 0 {
		return
	}
	flags, rest := b[0], b[1:]
	e.Jump, e.Placed = flags&flagJump != 0, flags&flagPlaced != 0
	if flags&flagUnready != 0 {
		x := decoder{b: rest}
		e.Unready = int32(int64(x.uvarint(1<<31, "target that was not warm")) - 1)
		if e.UnreadyAt = int64(x.uvarint(1<<62, "time of a target that was not warm")); x.err == nil && e.UnreadyAt == 0 {
			x.fail("a target that was not warm at no time")
		}
		if x.err != nil {
			d.fail("%w", x.err)
			return
		}
		rest = x.b
	}
	if flags &^= knownFlags; flags != 0 || len(rest) > 0 {
		e.ext = append([]byte{flags}, rest...)
	}
}
