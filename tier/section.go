package tier

import (
	"encoding/binary"
	"hash/crc32"
)

// SectionType names what a section of a data object holds. Numbers are for ever.
type SectionType uint16

// Sections that this version writes, and numbers that are taken for later ones.
const (
	SectionIdentity    SectionType = 1 // JSON, see Identity
	SectionBlocks      SectionType = 2 // block table, see Block
	SectionOffsetIndex SectionType = 3 // one entry per batch, see IndexEntry
	SectionAborted     SectionType = 4 // aborted transactions, see AbortedTxn
	SectionProducers   SectionType = 5 // producer snapshot as the partition gave it
	SectionKeyBloom    SectionType = 6 // reserved
	SectionTags        SectionType = 7 // reserved
	SectionTimers      SectionType = 8 // reserved
	SectionWrappedKeys SectionType = 9 // reserved: wrapped encryption keys
	SectionParquet     SectionType = 10
)

// String names the section for messages and listings.
func (t SectionType) String() string {
	names := [...]string{"", "identity", "block table", "offset index", "aborted transactions", "producer snapshot",
		"key bloom filter", "tags", "timers", "wrapped keys", "parquet sidecar"}
	if int(t) < len(names) && t > 0 {
		return names[t]
	}
	return "unknown section"
}

// Section is an entry of the footer's directory.
type Section struct {
	Type     SectionType
	Required bool  // a reader that doesn't know the type must refuse the object
	Off      int64 // from the start of the object
	Len      int64
	CRC      uint32 // CRC32C of its bytes
}

const (
	headMagic       = "TBDOBJ01"
	tailMagic       = "TBDEND01"
	dirEntryLen     = 24
	trailerLen      = 32
	objectVersion   = 1
	sectionRequired = 1 // bit of an entry's flags
	maxSections     = 256
	maxSectionLen   = 256 << 20
	// MaxObjectSize bounds the size of a data object that is read or written.
	MaxObjectSize = 5 << 30
)

// trailer is the fixed end of a data object.
type trailer struct {
	dirLen int   // bytes of the directory, which lies right before the trailer
	size   int64 // of the whole object
}

// appendFooter appends directory and trailer to dst, which holds what goes before them. size is the size of the finished object.
func appendFooter(dst []byte, sections []Section, size int64) []byte {
	start := len(dst)
	for _, s := range sections {
		var flags uint16
		if s.Required {
			flags |= sectionRequired
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.Type))
		dst = binary.BigEndian.AppendUint16(dst, flags)
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.Off))
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.Len))
		dst = binary.BigEndian.AppendUint32(dst, s.CRC)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(dst)-start))
	dst = binary.BigEndian.AppendUint16(dst, objectVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0) // required features: none yet
	dst = binary.BigEndian.AppendUint64(dst, uint64(size))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, tailMagic...)
}

// parseTrailer reads the last trailerLen bytes of an object of size bytes. The checksum is not verified yet: it covers the
// directory too.
func parseTrailer(b []byte, size int64) (trailer, error) {
	var t trailer
	if len(b) != trailerLen {
		return t, corrupt("trailer", "%d bytes instead of %d", len(b), trailerLen)
	}
	if string(b[24:]) != tailMagic {
		return t, corrupt("trailer", "no data object ends like this")
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != objectVersion {
		return t, featureError("data object version", uint64(v))
	}
	if f := binary.BigEndian.Uint16(b[6:]); f != 0 {
		return t, featureError("data object features", uint64(f))
	}
	t.dirLen = int(binary.BigEndian.Uint32(b))
	t.size = int64(binary.BigEndian.Uint64(b[8:]))
	if t.size != size {
		return t, corrupt("trailer", "it belongs to an object of %d bytes, this one has %d", t.size, size)
	}
	if t.dirLen%dirEntryLen != 0 || t.dirLen > maxSections*dirEntryLen || int64(t.dirLen) > size-trailerLen-int64(len(headMagic)) {
		return t, corrupt("trailer", "directory of %d bytes in an object of %d", t.dirLen, size)
	}
	return t, nil
}

// parseDirectory verifies and reads directory and trailer, which b holds and nothing else.
func parseDirectory(b []byte, t trailer) ([]Section, error) {
	n := t.dirLen + trailerLen
	if len(b) != n {
		return nil, corrupt("directory", "%d bytes instead of %d", len(b), n)
	}
	if got, want := crc32.Checksum(b[:n-12], castagnoli), binary.BigEndian.Uint32(b[n-12:]); got != want {
		return nil, corrupt("directory", "checksum is %08x, want %08x", got, want)
	}
	end := t.size - int64(n)
	sections := make([]Section, 0, t.dirLen/dirEntryLen)
	for ; len(b) > trailerLen; b = b[dirEntryLen:] {
		s := Section{
			Type:     SectionType(binary.BigEndian.Uint16(b)),
			Required: binary.BigEndian.Uint16(b[2:])&sectionRequired != 0,
			Off:      int64(binary.BigEndian.Uint64(b[4:])),
			Len:      int64(binary.BigEndian.Uint64(b[12:])),
			CRC:      binary.BigEndian.Uint32(b[20:]),
		}
		if s.Off < int64(len(headMagic)) || s.Len < 0 || s.Len > maxSectionLen || s.Off > end-s.Len {
			return nil, corrupt("directory", "%v at %d with %d bytes lies outside of [%d, %d)", s.Type, s.Off, s.Len, len(headMagic), end)
		}
		if s.Required && s.Type != SectionIdentity && s.Type != SectionBlocks {
			return nil, featureError("required section", uint64(s.Type))
		}
		sections = append(sections, s)
	}
	return sections, nil
}
