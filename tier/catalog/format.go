package catalog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// ErrCorrupt: an object is damaged or was not written by tierbroker.
var ErrCorrupt = errors.New("corrupt catalog object")

// ErrVersion: an object needs features that this version does not have.
var ErrVersion = errors.New("catalog object needs a newer version")

const (
	headerLen = 16
	// maxPlain bounds the JSON: some hundred thousand topics.
	maxPlain = 128 << 20
	// MaxObject is the largest catalog object that is read, in bytes.
	MaxObject = 64 << 20
)

var magic = [4]byte{'T', 'B', 'C', 'L'}

type kind uint8

const (
	kindRoot     kind = 1
	kindSnapshot kind = 2
)

const (
	codecPlain = 0
	codecZstd  = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode frames the JSON of v. Roots stay plain, so that anybody can look at them.
func encode(k kind, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode catalog object: %w", err)
	}
	if len(plain) > maxPlain {
		return nil, fmt.Errorf("encode catalog object: %d bytes, at most %d are possible", len(plain), maxPlain)
	}
	b := make([]byte, headerLen, headerLen+len(plain)/4+256)
	copy(b, magic[:])
	b[4], b[5] = byte(k), codecPlain
	binary.LittleEndian.PutUint32(b[8:], uint32(len(plain)))
	if k == kindRoot {
		b = append(b, plain...)
	} else {
		b[5] = codecZstd
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			return nil, fmt.Errorf("encode catalog object: %w", err)
		}
		b = w.EncodeAll(plain, b)
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("encode catalog object: %w", err)
		}
	}
	if len(b) > MaxObject {
		return nil, fmt.Errorf("encode catalog object: %d bytes, at most %d are possible", len(b), MaxObject)
	}
	binary.LittleEndian.PutUint32(b[12:], sum(b))
	return b, nil
}

// sum covers all but itself.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[headerLen:])
}

// decode reads what encode wrote into v.
func decode(k kind, b []byte, v any) error {
	switch {
	case len(b) < headerLen || [4]byte(b[:4]) != magic:
		return fmt.Errorf("%w: no magic", ErrCorrupt)
	case len(b) > MaxObject:
		return fmt.Errorf("%w: %d bytes, at most %d are read", ErrCorrupt, len(b), MaxObject)
	case sum(b) != binary.LittleEndian.Uint32(b[12:]):
		return fmt.Errorf("%w: checksum does not match", ErrCorrupt)
	case kind(b[4]) != k:
		return fmt.Errorf("%w: kind %d, want %d", ErrCorrupt, b[4], k)
	case binary.LittleEndian.Uint16(b[6:]) != 0:
		return fmt.Errorf("%w: features %#x", ErrVersion, binary.LittleEndian.Uint16(b[6:]))
	}
	n := binary.LittleEndian.Uint32(b[8:])
	if n > maxPlain {
		return fmt.Errorf("%w: it announces %d bytes", ErrCorrupt, n)
	}
	plain := b[headerLen:]
	switch b[5] {
	case codecPlain:
	case codecZstd:
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPlain+1))
		if err != nil {
			return fmt.Errorf("decode catalog object: %w", err)
		}
		defer r.Close()
		// The buffer grows with what is really there, not with what is announced.
		if plain, err = r.DecodeAll(plain, make([]byte, 0, min(int(n), 1<<20))); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	default:
		return fmt.Errorf("%w: codec %d", ErrVersion, b[5])
	}
	if uint32(len(plain)) != n {
		return fmt.Errorf("%w: %d bytes, announced were %d", ErrCorrupt, len(plain), n)
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
