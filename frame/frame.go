package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// HeaderLen is the length of a header without extensions, in bytes.
	HeaderLen = 92
	// MaxHeaderLen is the longest header with extensions, in bytes.
	MaxHeaderLen = 8 << 10
	// MaxPayload is the longest payload, in bytes.
	MaxPayload = 128 << 20
	// CoveredPayload is how many bytes of the payload the header's CRC covers.
	CoveredPayload = 21
	// Version is the format version that [Encode] writes.
	Version = 1
	// Magic is the first four bytes of every frame, "TBfr".
	Magic = uint32(0x54426672)
	// ExtRequired marks an extension type that a reader must know.
	ExtRequired = uint16(0x8000)
)

// What a header may be refused for. ErrShort: more bytes are needed to decide.
// ErrMagic: no frame starts here. ErrCRC: a frame that is damaged or torn.
// ErrVersion: an intact frame of a newer program. ErrInvalid: an intact frame that
// no program of this format writes.
var (
	ErrShort   = errors.New("frame: not enough bytes")
	ErrMagic   = errors.New("frame: no frame magic")
	ErrCRC     = errors.New("frame: checksum mismatch")
	ErrVersion = errors.New("frame: unknown version or type")
	ErrInvalid = errors.New("frame: impossible field")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Type says what a frame is.
type Type uint8

const (
	// Data carries one Kafka record batch; BaseOffset and RecordCount are the batch's.
	Data Type = 1
	// EpochStart marks that Epoch begins at BaseOffset. It has no payload.
	EpochStart Type = 2
	// Truncate takes back the partition's records from a new end offset on. The
	// payload is that offset ([AppendTruncate], [TruncateEnd]).
	Truncate Type = 3
	// DropPartition takes back all that this log holds of the partition. It has no
	// payload.
	DropPartition Type = 4
)

// String returns the name used in dumps and errors.
func (t Type) String() string {
	switch t {
	case Data:
		return "data"
	case EpochStart:
		return "epoch-start"
	case Truncate:
		return "truncate"
	case DropPartition:
		return "drop-partition"
	}
	return fmt.Sprintf("type-%d", uint8(t))
}

// Extension is an optional part of a header. Its value is at most MaxHeaderLen bytes.
type Extension struct {
	Type  uint16
	Value []byte
}

// Header describes a frame. Position and Synced are byte positions in the log:
// where this frame starts, and the highest one known to be on stable storage when
// it was written. AppendTime is in milliseconds since 1970. KeyID 0 means that the
// payload is not encrypted.
type Header struct {
	Type        Type
	Flags       uint8
	Incarnation uint64
	Position    uint64
	Synced      uint64
	ID          PartitionID
	Epoch       int32
	BaseOffset  int64
	RecordCount int32
	AppendTime  int64
	KeyID       uint32
	PayloadLen  uint32
	Extensions  []Extension
}

// EncodedLen returns the length of the encoded header with its extensions, in bytes.
func (h *Header) EncodedLen() int {
	n := HeaderLen
	for i := range h.Extensions {
		n += 4 + len(h.Extensions[i].Value)
	}
	return n
}

// Encode appends the encoded header to dst and returns the longer slice. The payload
// itself isn't appended: only its first bytes are read, for the CRC, and its length
// is written whatever h.PayloadLen says. The caller keeps the limits MaxHeaderLen and
// MaxPayload; a header beyond them would be refused when read.
func Encode(dst []byte, h *Header, payload []byte) []byte {
	start := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint32(dst, Magic)
	dst = be.AppendUint32(dst, 0) // the crc, set below
	dst = append(dst, Version, byte(h.Type), h.Flags, 0)
	dst = be.AppendUint16(dst, uint16(h.EncodedLen()))
	dst = be.AppendUint16(dst, 0)
	dst = be.AppendUint64(dst, h.Incarnation)
	dst = be.AppendUint64(dst, h.Position)
	dst = be.AppendUint64(dst, h.Synced)
	dst = append(dst, h.ID.Topic[:]...)
	dst = be.AppendUint32(dst, uint32(h.ID.Partition))
	dst = be.AppendUint32(dst, uint32(h.Epoch))
	dst = be.AppendUint64(dst, uint64(h.BaseOffset))
	dst = be.AppendUint32(dst, uint32(h.RecordCount))
	dst = be.AppendUint32(dst, h.KeyID)
	dst = be.AppendUint64(dst, uint64(h.AppendTime))
	dst = be.AppendUint32(dst, uint32(len(payload)))
	for i := range h.Extensions {
		dst = be.AppendUint16(dst, h.Extensions[i].Type)
		dst = be.AppendUint16(dst, uint16(len(h.Extensions[i].Value)))
		dst = append(dst, h.Extensions[i].Value...)
	}
	be.PutUint32(dst[start+4:], checksum(dst[start+8:], payload))
	return dst
}

// checksum covers the header after its crc field and the start of the payload.
func checksum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, payload[:min(CoveredPayload, len(payload))])
}

// Decode reads the header at the start of b, which must hold the header and the
// first min(21, payload length) bytes of the payload. headerLen is where the payload
// starts. Extension values are slices of b.
//
// Errors: ErrShort, ErrMagic, ErrCRC, ErrVersion, ErrInvalid. Together with
// ErrVersion, headerLen and h.PayloadLen are set, so that the frame can be stepped
// over; with the others nothing is.
func Decode(b []byte) (h Header, headerLen int, err error) {
	be := binary.BigEndian
	if len(b) < HeaderLen {
		if len(b) >= 4 && be.Uint32(b) != Magic {
			return Header{}, 0, ErrMagic
		}
		return Header{}, 0, ErrShort
	}
	if be.Uint32(b) != Magic {
		return Header{}, 0, ErrMagic
	}
	hlen := int(be.Uint16(b[12:]))
	if hlen < HeaderLen || hlen > MaxHeaderLen {
		return Header{}, 0, ErrCRC
	}
	plen := be.Uint32(b[88:])
	covered := int(min(CoveredPayload, plen))
	if len(b) < hlen+covered {
		return Header{}, 0, ErrShort
	}
	if be.Uint32(b[4:]) != checksum(b[8:hlen], b[hlen:hlen+covered]) {
		return Header{}, 0, ErrCRC
	}
	if b[8] != Version {
		return Header{PayloadLen: plen}, hlen, fmt.Errorf("%w: format version %d", ErrVersion, b[8])
	}
	h = Header{
		Type:        Type(b[9]),
		Flags:       b[10],
		Incarnation: be.Uint64(b[16:]),
		Position:    be.Uint64(b[24:]),
		Synced:      be.Uint64(b[32:]),
		ID:          PartitionID{Topic: TopicID(b[40:56]), Partition: int32(be.Uint32(b[56:]))},
		Epoch:       int32(be.Uint32(b[60:])),
		BaseOffset:  int64(be.Uint64(b[64:])),
		RecordCount: int32(be.Uint32(b[72:])),
		KeyID:       be.Uint32(b[76:]),
		AppendTime:  int64(be.Uint64(b[80:])),
		PayloadLen:  plen,
	}
	if err := h.decodeExtensions(b[HeaderLen:hlen]); err != nil {
		return errorHeader(&h, hlen, err)
	}
	if err := h.check(); err != nil {
		return errorHeader(&h, hlen, err)
	}
	return h, hlen, nil
}

// errorHeader keeps of a header what goes with an error: all of it for a newer
// program's frame, nothing for an invalid one.
func errorHeader(h *Header, hlen int, err error) (Header, int, error) {
	if errors.Is(err, ErrVersion) {
		return *h, hlen, err
	}
	return Header{}, 0, err
}

func (h *Header) decodeExtensions(b []byte) error {
	var required error
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("%w: cut extension", ErrInvalid)
		}
		typ, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if n > len(b)-4 {
			return fmt.Errorf("%w: extension of %d bytes in %d", ErrInvalid, n, len(b)-4)
		}
		if typ&ExtRequired != 0 && required == nil {
			required = fmt.Errorf("%w: required extension %#x", ErrVersion, typ)
		}
		h.Extensions = append(h.Extensions, Extension{Type: typ, Value: b[4 : 4+n : 4+n]})
		b = b[4+n:]
	}
	return required
}

// check looks for values that no writer of this version produces.
func (h *Header) check() error {
	switch {
	case h.PayloadLen > MaxPayload:
		return fmt.Errorf("%w: payload of %d bytes", ErrInvalid, h.PayloadLen)
	case h.ID.Partition < 0 || h.BaseOffset < 0 || h.RecordCount < 0:
		return fmt.Errorf("%w: partition %d, base offset %d, record count %d", ErrInvalid, h.ID.Partition, h.BaseOffset, h.RecordCount)
	case h.Type < Data || h.Type > DropPartition:
		return fmt.Errorf("%w: frame type %d", ErrVersion, h.Type)
	case h.Type != Data && h.PayloadLen > CoveredPayload:
		return fmt.Errorf("%w: %s frame with %d bytes of payload", ErrInvalid, h.Type, h.PayloadLen)
	case h.Type == Truncate && h.PayloadLen != 8:
		return fmt.Errorf("%w: truncate frame with %d bytes of payload", ErrInvalid, h.PayloadLen)
	}
	return nil
}

// AppendTruncate appends the payload of a Truncate frame: the partition's new end
// offset.
func AppendTruncate(dst []byte, end int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(end))
}

// TruncateEnd reads the payload of a Truncate frame.
func TruncateEnd(payload []byte) (end int64, err error) {
	if len(payload) != 8 {
		return 0, fmt.Errorf("%w: truncate payload of %d bytes", ErrInvalid, len(payload))
	}
	end = int64(binary.BigEndian.Uint64(payload))
	if end < 0 {
		return 0, fmt.Errorf("%w: truncate to offset %d", ErrInvalid, end)
	}
	return end, nil
}

const (
	batchHeaderLen  = 61 // a Kafka v2 batch without records
	batchLengthSkew = 12 // its length field counts what follows the field
)

// Verify checks a whole payload against its header: its length and, for data frames,
// that it is exactly one v2 batch at h.BaseOffset whose own CRC is right. Control
// payloads are covered by the header's CRC already. Errors: ErrShort, ErrCRC,
// ErrInvalid; ErrVersion for an encrypted payload.
func Verify(h *Header, payload []byte) error {
	if uint64(len(payload)) < uint64(h.PayloadLen) {
		return ErrShort
	}
	if uint64(len(payload)) > uint64(h.PayloadLen) {
		return fmt.Errorf("%w: %d bytes for a payload of %d", ErrInvalid, len(payload), h.PayloadLen)
	}
	if h.Type != Data {
		return nil
	}
	if h.KeyID != 0 {
		return fmt.Errorf("%w: payload encrypted with key %d", ErrVersion, h.KeyID)
	}
	if len(payload) < batchHeaderLen {
		return fmt.Errorf("%w: batch of %d bytes", ErrInvalid, len(payload))
	}
	be := binary.BigEndian
	if m := payload[16]; m != 2 {
		return fmt.Errorf("%w: batch magic %d", ErrInvalid, m)
	}
	if n := int64(int32(be.Uint32(payload[8:]))) + batchLengthSkew; n != int64(len(payload)) {
		return fmt.Errorf("%w: batch of %d bytes in a payload of %d", ErrInvalid, n, len(payload))
	}
	if base := int64(be.Uint64(payload)); base != h.BaseOffset {
		return fmt.Errorf("%w: batch at offset %d in a frame for offset %d", ErrInvalid, base, h.BaseOffset)
	}
	if be.Uint32(payload[17:]) != crc32.Checksum(payload[21:], castagnoli) {
		return ErrCRC
	}
	return nil
}
