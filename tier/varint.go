package tier

import "encoding/binary"

// decoder reads varints from hostile bytes. The first fault sticks; the caller looks at it once at the end.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint(max uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > max {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length reads a count of something that takes at least size bytes each, so that no count can announce more than is there.
func (d *decoder) length(size int) int {
	n := d.uvarint(uint64(len(d.b)))
	if d.bad || n > uint64(len(d.b)/size) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// done reports whether everything was read, and nothing was wrong.
func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }
