package wal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

const (
	dataMagic   = "TBWOBJ01"
	sealMagic   = "TBWSEAL1"
	tailMagic   = "TBWEND01"
	version     = 1
	headerLen   = 80
	trailerLen  = 96
	sealLen     = 160 // no data object is as short
	maxSealName = sealLen - headerLen - 2 - 4

	// MaxObject is the most bytes an object may have.
	MaxObject = 1 << 30
	// MaxPart is how many bytes a part may have, unless it is a single batch.
	MaxPart = 4 << 20
)

type attemptID [12]byte

func newAttempt() (a attemptID) {
	_, _ = rand.Read(a[:]) // never fails: crypto/rand ends the process rather than return an error
	return a
}

// header is how every object of a stream begins, seals too.
type header struct {
	seal    bool
	broker  int32
	stream  uint32 // CRC32C of the incarnation
	seq     uint64
	floor   uint64
	acked   uint64 // all numbers below were acknowledged when this was built; 0 in seals
	writer  attemptID
	attempt attemptID
}

func (h *header) of(id StreamID, seq uint64) bool {
	return h.broker == id.Broker && h.stream == checksum([]byte(id.Incarnation)) && h.seq == seq
}

func (h *header) put(b []byte) {
	magic := dataMagic
	if h.seal {
		magic = sealMagic
	}
	copy(b, magic)
	binary.BigEndian.PutUint16(b[8:], version)
	binary.BigEndian.PutUint16(b[10:], 0) // features that a reader must know: none yet
	binary.BigEndian.PutUint32(b[12:], uint32(h.broker))
	binary.BigEndian.PutUint64(b[16:], h.seq)
	binary.BigEndian.PutUint64(b[24:], h.floor)
	binary.BigEndian.PutUint64(b[32:], h.acked)
	copy(b[40:], h.writer[:])
	copy(b[52:], h.attempt[:])
	binary.BigEndian.PutUint32(b[64:], h.stream)
	clear(b[68:76])
	binary.BigEndian.PutUint32(b[76:], checksum(b[:76]))
}

func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerLen {
		return h, corrupt("header", "%d bytes", len(b))
	}
	switch string(b[:8]) {
	case dataMagic:
	case sealMagic:
		h.seal = true
	default:
		return h, corrupt("header", "no WAL object begins with %q", b[:8])
	}
	if got, want := checksum(b[:76]), binary.BigEndian.Uint32(b[76:]); got != want {
		return h, corrupt("header", "checksum is %08x, want %08x", got, want)
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != version {
		return h, featureError("WAL object version", uint64(v))
	}
	if f := binary.BigEndian.Uint16(b[10:]); f != 0 {
		return h, featureError("WAL object features", uint64(f))
	}
	h.broker = int32(binary.BigEndian.Uint32(b[12:]))
	h.seq = binary.BigEndian.Uint64(b[16:])
	h.floor = binary.BigEndian.Uint64(b[24:])
	h.acked = binary.BigEndian.Uint64(b[32:])
	copy(h.writer[:], b[40:])
	copy(h.attempt[:], b[52:])
	h.stream = binary.BigEndian.Uint32(b[64:])
	if h.broker < 0 || h.seq > maxSeq || h.floor > h.seq || h.acked > h.seq || !h.seal && h.floor > h.acked {
		return h, corrupt("header", "number %d, floor %d, acknowledged up to %d, broker %d", h.seq, h.floor, h.acked, h.broker)
	}
	return h, nil
}

// encodeSeal returns the bytes of a seal. cluster is the incarnation of the cluster that seals.
func encodeSeal(h header, cluster string) ([]byte, error) {
	if len(cluster) > maxSealName {
		return nil, fmt.Errorf("seal: cluster incarnation of %d bytes: %w", len(cluster), ErrTooLarge)
	}
	b := make([]byte, sealLen)
	h.seal = true
	h.put(b)
	t := b[headerLen:]
	binary.BigEndian.PutUint16(t, uint16(len(cluster)))
	copy(t[2:], cluster)
	binary.BigEndian.PutUint32(b[sealLen-4:], checksum(b[:sealLen-4]))
	return b, nil
}

// decodeSeal reads a seal from hostile bytes.
func decodeSeal(b []byte) (h header, cluster string, err error) {
	if len(b) != sealLen {
		return h, "", corrupt("seal", "%d bytes instead of %d", len(b), sealLen)
	}
	if h, err = parseHeader(b); err != nil {
		return h, "", err
	}
	if !h.seal {
		return h, "", corrupt("seal", "it begins like a data object")
	}
	if got, want := checksum(b[:sealLen-4]), binary.BigEndian.Uint32(b[sealLen-4:]); got != want {
		return h, "", corrupt("seal", "checksum is %08x, want %08x", got, want)
	}
	n := int(binary.BigEndian.Uint16(b[headerLen:]))
	if n > maxSealName {
		return h, "", corrupt("seal", "name of %d bytes", n)
	}
	return h, string(b[headerLen+2 : headerLen+2+n]), nil
}

// trailer is how every data object ends: where its footer is, and where the combined footers before it.
type trailer struct {
	footerOff   int64 // [footerOff, size - trailerLen): footer
	combinedOff int64 // [combinedOff, footerOff): combined footers, or nothing
	footerCRC   uint32
	combinedCRC uint32
	seq         uint64
	lastIndex   uint64 // newest object before this one with combined footers, noIndex when there is none
	size        int64
}

const noIndex = ^uint64(0)

func (t *trailer) append(dst []byte) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.footerOff))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.combinedOff))
	dst = binary.BigEndian.AppendUint32(dst, t.footerCRC)
	dst = binary.BigEndian.AppendUint32(dst, t.combinedCRC)
	dst = binary.BigEndian.AppendUint64(dst, t.seq)
	dst = binary.BigEndian.AppendUint64(dst, t.lastIndex)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.size))
	dst = append(dst, make([]byte, trailerLen-48)...)
	b := dst[at:]
	binary.BigEndian.PutUint16(b[48:], version)
	binary.BigEndian.PutUint32(b[84:], checksum(b[:84]))
	copy(b[88:], tailMagic)
	return dst
}

func parseTrailer(b []byte, size int64) (t trailer, err error) {
	if len(b) != trailerLen || string(b[88:]) != tailMagic {
		return t, corrupt("trailer", "no WAL object ends like this")
	}
	if got, want := checksum(b[:84]), binary.BigEndian.Uint32(b[84:]); got != want {
		return t, corrupt("trailer", "checksum is %08x, want %08x", got, want)
	}
	if v := binary.BigEndian.Uint16(b[48:]); v != version {
		return t, featureError("WAL object version", uint64(v))
	}
	if f := binary.BigEndian.Uint16(b[50:]); f != 0 {
		return t, featureError("WAL object features", uint64(f))
	}
	t.footerOff = int64(binary.BigEndian.Uint64(b))
	t.combinedOff = int64(binary.BigEndian.Uint64(b[8:]))
	t.footerCRC = binary.BigEndian.Uint32(b[16:])
	t.combinedCRC = binary.BigEndian.Uint32(b[20:])
	t.seq = binary.BigEndian.Uint64(b[24:])
	t.lastIndex = binary.BigEndian.Uint64(b[32:])
	t.size = int64(binary.BigEndian.Uint64(b[40:]))
	if t.size != size || t.combinedOff < headerLen || t.combinedOff > t.footerOff || t.footerOff > size-trailerLen || t.seq > maxSeq {
		return t, corrupt("trailer", "footer at %d, combined footers at %d, size %d, number %d in an object of %d bytes", t.footerOff, t.combinedOff, t.size, t.seq, size)
	}
	if t.lastIndex != noIndex && t.lastIndex >= t.seq {
		return t, corrupt("trailer", "combined footers of object %d before object %d", t.lastIndex, t.seq)
	}
	return t, nil
}
