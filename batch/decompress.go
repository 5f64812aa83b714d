package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decoder is a pooled decompressor. open starts a new input; close lets go of it.
type decoder interface {
	io.Reader
	open(src []byte) error
	close()
}

// streams and decoders are pooled apart: a stream borrows the decoder that it needs.
var (
	streamPool = sync.Pool{New: func() any { return &stream{buf: make([]byte, windowBytes)} }}
	gzipPool   = sync.Pool{New: func() any { return new(gzipDecoder) }}
	snappyPool = sync.Pool{New: func() any { return new(snappyDecoder) }}
	lz4Pool    = sync.Pool{New: func() any { return &lz4Decoder{r: lz4.NewReader(nil)} }}
	zstdPool   = sync.Pool{New: func() any { return newZstdDecoder(poolWindow) }}
)

// openStream starts to decompress src.
func openStream(codec Codec, src []byte, maxPlain int64) (*stream, error) {
	var dec decoder
	switch codec {
	case Gzip:
		dec = gzipPool.Get().(*gzipDecoder)
	case Snappy:
		dec = snappyPool.Get().(*snappyDecoder)
	case LZ4:
		dec = lz4Pool.Get().(*lz4Decoder)
	case Zstd:
		dec = zstdFor(src)
	default:
		return nil, fmt.Errorf("%w: %d", ErrCodec, codec)
	}
	if err := dec.open(src); err != nil {
		dec.close()
		return nil, fmt.Errorf("%w: decompress %s: %w", ErrRecord, codec, err)
	}
	s := streamPool.Get().(*stream)
	*s = stream{dec: dec, buf: s.buf, left: maxPlain, maxLen: maxPlain}
	return s, nil
}

func (s *stream) close() {
	s.dec.close()
	s.dec = nil
	if len(s.buf) <= keepBytes {
		streamPool.Put(s)
	}
}

type gzipDecoder struct {
	gzip.Reader
	src bytes.Reader
}

func (d *gzipDecoder) open(src []byte) error {
	d.src.Reset(src)
	return d.Reset(&d.src)
}

func (d *gzipDecoder) close() {
	d.src.Reset(nil)
	gzipPool.Put(d)
}

type lz4Decoder struct {
	r   *lz4.Reader
	src bytes.Reader
}

func (d *lz4Decoder) open(src []byte) error {
	d.src.Reset(src)
	d.r.Reset(&d.src)
	return nil
}

func (d *lz4Decoder) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *lz4Decoder) close() {
	d.src.Reset(nil)
	d.r.Reset(&d.src) // gives its block buffer back
	lz4Pool.Put(d)
}

const (
	// poolWindow is the largest zstd window of pooled decoders: what levels up to 19 use.
	poolWindow = 8 << 20
	// maxWindow is the largest zstd window at all: what Kafka's clients accept.
	maxWindow = 128 << 20
)

type zstdDecoder struct {
	r      *zstd.Decoder
	err    error
	window uint64
	src    bytes.Reader
}

func newZstdDecoder(window uint64) *zstdDecoder {
	// One goroutine at a time, none in the background, and no more memory than the window.
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window))
	return &zstdDecoder{r: r, err: err, window: window}
}

// zstdFor returns a decoder that can hold the window of the (first) frame in src.
func zstdFor(src []byte) *zstdDecoder {
	var h zstd.Header
	if err := h.Decode(src); err == nil && max(h.WindowSize, singleSegmentSize(&h)) > poolWindow {
		return newZstdDecoder(maxWindow)
	}
	return zstdPool.Get().(*zstdDecoder)
}

// singleSegmentSize returns the size of a frame that has no window but itself.
func singleSegmentSize(h *zstd.Header) uint64 {
	if h.SingleSegment {
		return h.FrameContentSize
	}
	return 0
}

func (d *zstdDecoder) open(src []byte) error {
	if d.err != nil {
		return d.err
	}
	d.src.Reset(src)
	return d.r.Reset(&d.src)
}

func (d *zstdDecoder) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *zstdDecoder) close() {
	if d.err != nil {
		return
	}
	d.src.Reset(nil)
	if d.window > poolWindow || d.r.Reset(nil) != nil {
		d.r.Close()
		return
	}
	zstdPool.Put(d)
}

// xerialMagic starts the framing of the Java snappy library, which Kafka's own clients
// use. Version and oldest compatible version (four bytes each) follow, then chunks: length
// (four bytes, big-endian), raw snappy block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderLen = 16

var errSnappy = errors.New("corrupt snappy data")

type snappyDecoder struct {
	src    []byte // chunks not decoded yet
	framed bool
	buf    []byte
	plain  []byte // decoded and not read yet
}

func (d *snappyDecoder) open(src []byte) error {
	d.src, d.plain, d.framed = src, nil, bytes.HasPrefix(src, xerialMagic)
	if d.framed {
		if len(src) < xerialHeaderLen {
			return errSnappy
		}
		d.src = src[xerialHeaderLen:]
	}
	return nil
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for len(d.plain) == 0 {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.nextChunk(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.plain)
	d.plain = d.plain[n:]
	return n, nil
}

func (d *snappyDecoder) nextChunk() error {
	chunk := d.src
	d.src = nil
	if d.framed {
		if len(chunk) < 4 {
			return errSnappy
		}
		n := binary.BigEndian.Uint32(chunk)
		if uint64(n) > uint64(len(chunk)-4) {
			return errSnappy
		}
		d.src = chunk[4+n:]
		chunk = chunk[4 : 4+n]
	}
	plain, err := snappy.DecodedLen(chunk)
	if err != nil {
		return errSnappy
	}
	// Three bytes of snappy stand for 64 at most: a block that announces more lies, and
	// must not make us allocate.
	if plain > len(chunk)*22 {
		return errSnappy
	}
	if plain > DefaultMaxPlain {
		return fmt.Errorf("%w: snappy block of %d bytes", ErrTooLarge, plain)
	}
	d.buf, err = snappy.Decode(d.buf[:cap(d.buf)], chunk)
	if err != nil {
		d.buf = nil
		return errSnappy
	}
	d.plain = d.buf
	return nil
}

func (d *snappyDecoder) close() {
	d.src, d.plain = nil, nil
	if cap(d.buf) > keepBytes {
		d.buf = nil
	}
	snappyPool.Put(d)
}
