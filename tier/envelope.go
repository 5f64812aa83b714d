package tier

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Heads and pages are JSON in an envelope:
//
//	0  magic            8 bytes
//	8  version          u16, 1
//	10 codec            u8, 1 = zstd (0 = plain)
//	11 zero             u8
//	12 read features    u32, a reader that doesn't know one of the bits must refuse
//	16 write features   u32, who doesn't know one of the bits may read but must not replace
//	20 plain length     u32
//	24 stored length    u32
//	28 crc              u32, CRC32C of bytes 0 to 28 and of the stored bytes
//	32 stored bytes
const (
	envelopeLen     = 32
	envelopeVersion = 1
	codecPlain      = 0
	codecZstd       = 1
	headFileMagic   = "TBHEAD01"
	pageFileMagic   = "TBPAGE01"
	maxEnvelope     = 16 << 20 // stored
	maxPlain        = 32 << 20
)

// envelope is what a decoded envelope holds besides its JSON.
type envelope struct {
	readFeatures, writeFeatures uint32
}

// codecs are made when first needed: a program that only parses keys should not pay for them.
var codecs = struct {
	enc func() *zstd.Encoder
	dec func() *zstd.Decoder
}{
	enc: sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	}),
	dec: sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxPlain), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	}),
}

func seal(magic string, plain []byte, e envelope) []byte {
	dst := make([]byte, envelopeLen, envelopeLen+len(plain)/4+64)
	dst = codecs.enc().EncodeAll(plain, dst)
	copy(dst, magic)
	binary.BigEndian.PutUint16(dst[8:], envelopeVersion)
	dst[10], dst[11] = codecZstd, 0
	binary.BigEndian.PutUint32(dst[12:], e.readFeatures)
	binary.BigEndian.PutUint32(dst[16:], e.writeFeatures)
	binary.BigEndian.PutUint32(dst[20:], uint32(len(plain)))
	binary.BigEndian.PutUint32(dst[24:], uint32(len(dst)-envelopeLen))
	binary.BigEndian.PutUint32(dst[28:], envelopeCRC(dst))
	return dst
}

func envelopeCRC(b []byte) uint32 {
	h := checksum(b[:28])
	return updateCRC(h, b[envelopeLen:])
}

func unseal(part, magic string, b []byte) ([]byte, envelope, error) {
	var e envelope
	if len(b) < envelopeLen || len(b) > maxEnvelope {
		return nil, e, corrupt(part, "%d bytes", len(b))
	}
	if string(b[:8]) != magic {
		return nil, e, corrupt(part, "it begins with %q instead of %q", b[:8], magic)
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != envelopeVersion {
		return nil, e, featureError(part+" version", uint64(v))
	}
	if n := binary.BigEndian.Uint32(b[24:]); int64(n) != int64(len(b)-envelopeLen) {
		return nil, e, corrupt(part, "%d stored bytes instead of %d", len(b)-envelopeLen, n)
	}
	if got, want := envelopeCRC(b), binary.BigEndian.Uint32(b[28:]); got != want {
		return nil, e, corrupt(part, "checksum is %08x, want %08x", got, want)
	}
	e.readFeatures, e.writeFeatures = binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])
	if e.readFeatures != 0 {
		return nil, e, featureError(part+" features", uint64(e.readFeatures))
	}
	n := binary.BigEndian.Uint32(b[20:])
	if n > maxPlain {
		return nil, e, corrupt(part, "%d bytes when decompressed, at most %d are allowed", n, maxPlain)
	}
	plain := b[envelopeLen:]
	switch b[10] {
	case codecPlain:
	case codecZstd:
		var err error
		if plain, err = codecs.dec().DecodeAll(plain, nil); err != nil {
			return nil, e, corrupt(part, "decompress: %v", err)
		}
	default:
		return nil, e, featureError(part+" codec", uint64(b[10]))
	}
	if len(plain) != int(n) {
		return nil, e, corrupt(part, "%d bytes when decompressed instead of %d", len(plain), n)
	}
	return plain, e, nil
}

// checkEnvelope says whether others could decode what seal returned.
func checkEnvelope(part string, plain, sealed []byte) error {
	if len(plain) > maxPlain || len(sealed) > maxEnvelope {
		return fmt.Errorf("%s of %d bytes: %w", part, len(plain), ErrTooLarge)
	}
	if err := checkJSON(plain); err != nil {
		return fmt.Errorf("%s: %w: %w", part, ErrTooLarge, err)
	}
	return nil
}
