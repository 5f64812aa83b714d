package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// FileHeaderLen is the length of the block at the start of every file, in bytes.
	// It takes part in the position space: the first frame of a file stands at its
	// base + FileHeaderLen.
	FileHeaderLen = 4096

	fileVersion  = 1
	headerBytes  = 96   // encoded header
	headerCopyAt = 1024 // second copy, in another sector
	sealAt       = 2048
	sealBytes    = 40

	fileMagic = uint64(0x5442736567000d0a) // "TBseg", 0, CR, LF
	sealMagic = uint64(0x54427365616c0d0a) // "TBseal", CR, LF
)

// Kinds of a file: how its predecessor ended.
const (
	kindRotated = uint16(0) // the predecessor was full; this file goes on in the same life
	kindOpened  = uint16(1) // started by Open or Reopen: all below the predecessor's end was synced
)

const flagPredecessor = uint16(1) // PredBase and PredEnd are set

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FileHeader is the decoded header of a file; see doc.go for its bytes.
type FileHeader struct {
	Kind        uint16 // 0 rotated, 1 opened
	HasPred     bool
	Incarnation uint64
	Base        uint64 // position of the file's first byte
	Capacity    uint64 // bytes of position space that the file owns
	PredBase    uint64 // the file before it ...
	PredEnd     uint64 // ... and the position where its frames end
	Synced      uint64 // highest position known to be synced when the header was written
	Created     int64  // ms since 1970
}

// appendFileHeader appends the whole block of FileHeaderLen bytes.
func appendFileHeader(dst []byte, h *FileHeader) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, FileHeaderLen)...)
	b := dst[start:]
	be := binary.BigEndian
	be.PutUint64(b, fileMagic)
	be.PutUint16(b[12:], fileVersion)
	be.PutUint16(b[14:], headerBytes)
	be.PutUint16(b[16:], h.Kind)
	if h.HasPred {
		be.PutUint16(b[18:], flagPredecessor)
	}
	be.PutUint64(b[24:], h.Incarnation)
	be.PutUint64(b[32:], h.Base)
	be.PutUint64(b[40:], h.Capacity)
	be.PutUint64(b[48:], h.PredBase)
	be.PutUint64(b[56:], h.PredEnd)
	be.PutUint64(b[64:], h.Synced)
	be.PutUint64(b[72:], uint64(h.Created))
	be.PutUint32(b[8:], crc32.Checksum(b[12:headerBytes], castagnoli))
	copy(b[headerCopyAt:], b[:headerBytes])
	return dst
}

// DecodeFileHeader reads the header from the first FileHeaderLen bytes of a file; when
// the first copy is damaged, the second one counts. Errors: ErrFormat, ErrVersion.
func DecodeFileHeader(b []byte) (FileHeader, error) {
	if len(b) < FileHeaderLen {
		return FileHeader{}, fmt.Errorf("%w: %d bytes where a file header needs %d", ErrFormat, len(b), FileHeaderLen)
	}
	h, err := decodeHeaderCopy(b[:headerBytes])
	if err != nil {
		if second, err2 := decodeHeaderCopy(b[headerCopyAt : headerCopyAt+headerBytes]); err2 == nil {
			return second, nil
		}
	}
	return h, err
}

func decodeHeaderCopy(b []byte) (FileHeader, error) {
	be := binary.BigEndian
	if be.Uint64(b) != fileMagic {
		return FileHeader{}, fmt.Errorf("%w: no magic", ErrFormat)
	}
	if be.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return FileHeader{}, fmt.Errorf("%w: header checksum mismatch", ErrFormat)
	}
	if v := be.Uint16(b[12:]); v != fileVersion {
		return FileHeader{}, fmt.Errorf("%w %d", ErrVersion, v)
	}
	h := FileHeader{
		Kind:        be.Uint16(b[16:]),
		HasPred:     be.Uint16(b[18:])&flagPredecessor != 0,
		Incarnation: be.Uint64(b[24:]),
		Base:        be.Uint64(b[32:]),
		Capacity:    be.Uint64(b[40:]),
		PredBase:    be.Uint64(b[48:]),
		PredEnd:     be.Uint64(b[56:]),
		Synced:      be.Uint64(b[64:]),
		Created:     int64(be.Uint64(b[72:])),
	}
	switch {
	case be.Uint16(b[14:]) != headerBytes || h.Kind > kindOpened:
		return FileHeader{}, fmt.Errorf("%w: header length %d, kind %d", ErrFormat, be.Uint16(b[14:]), h.Kind)
	case h.Base > maxPosition || h.Capacity > maxFileBytes || h.Capacity < FileHeaderLen || h.Base%8 != 0:
		return FileHeader{}, fmt.Errorf("%w: base %d, capacity %d", ErrFormat, h.Base, h.Capacity)
	case h.HasPred && (h.PredBase >= h.Base || h.PredEnd < h.PredBase+FileHeaderLen || h.PredEnd > h.Base):
		return FileHeader{}, fmt.Errorf("%w: predecessor %d to %d of base %d", ErrFormat, h.PredBase, h.PredEnd, h.Base)
	}
	return h, nil
}

const (
	maxPosition  = uint64(1) << 62
	maxFileBytes = uint64(1) << 40
)

// seal is written when a log is closed: the file ends at End, all of it is synced.
type seal struct {
	Incarnation uint64
	Base        uint64
	End         uint64
}

func appendSeal(dst []byte, s seal) []byte {
	start := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint64(dst, sealMagic)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint64(dst, s.Incarnation)
	dst = be.AppendUint64(dst, s.Base)
	dst = be.AppendUint64(dst, s.End)
	be.PutUint32(dst[start+8:], crc32.Checksum(dst[start+12:], castagnoli))
	return dst
}

// decodeSeal reads the seal of the file with header h from its first block. No seal, a
// damaged one, and one that does not belong to the file are all "not sealed".
func decodeSeal(block []byte, h *FileHeader) (seal, bool) {
	if len(block) < sealAt+sealBytes {
		return seal{}, false
	}
	b := block[sealAt : sealAt+sealBytes]
	be := binary.BigEndian
	if be.Uint64(b) != sealMagic || be.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return seal{}, false
	}
	s := seal{Incarnation: be.Uint64(b[16:]), Base: be.Uint64(b[24:]), End: be.Uint64(b[32:])}
	ok := s.Incarnation == h.Incarnation && s.Base == h.Base && s.End >= h.Base+FileHeaderLen && s.End <= h.Base+h.Capacity
	return s, ok
}

// FrameLen returns how many bytes a frame with a header of headerLen and a payload of
// payload bytes takes in the log, padding included: frames stand at multiples of 8.
func FrameLen(headerLen, payload int) int { return (headerLen + payload + 7) &^ 7 }
