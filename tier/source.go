package tier

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"github.com/tierbroker/tierbroker/frame"
)

// BatchInfo tells what the batch's own header doesn't: when it was appended. The other fields repeat the header.
type BatchInfo struct {
	Base, Last    int64 // offsets
	MaxTimestamp  int64 // milliseconds
	AppendTime    int64 // milliseconds; 0 or less when unknown
	Epoch         int32
	Records       int32
	Size          int
	RetentionTime int64 // 0: computed from MaxTimestamp and AppendTime
}

// Source gives the batches of an object in offset order. Batches is called at least twice, and must give the same bytes each
// time: first for sizes and checksums, then to send. b is valid during the call only. An error of yield must be returned.
type Source interface {
	Batches(yield func(b []byte, e BatchInfo) error) error
}

// FileSource is a Source whose batches lie in a file. An upload then reads each byte once: the first pass needs headers only, and
// the second goes from the file straight into the buffer of whoever sends it.
type FileSource interface {
	Source
	// Headers is like Batches, but b may end behind the batch's header (batch.HeaderLen). The CRC in the header is not checked:
	// if the batch's bytes don't fit it, the upload fails with bucket.ErrCorrupt.
	Headers(yield func(b []byte, e BatchInfo) error) error
	// Stream gives the bytes of all batches, one after the other.
	Stream() (io.ReadCloser, error)
}

// ObjectSpec says what a data object is for.
type ObjectSpec struct {
	ID         frame.PartitionID
	Topic      string
	Epoch      int32 // of the owner who uploads
	Start, End int64 // the object serves [Start, End)
	LogStart   int64 // the partition's start offset, for a head that is rebuilt
	Now        int64 // milliseconds
	Producers  []byte
	Epochs     []EpochStart // the partition's epoch history
	Aborted    []AbortedTxn
	// AllowBefore lets the first batch begin below Start, which happens after records were deleted in the middle of a batch.
	AllowBefore bool
	// Sparse lets offsets be missing between batches.
	Sparse bool
}

var (
	errStopped       = errors.New("source was stopped")
	errSourceChanged = errors.New("source gave other batches than before")
)

// objectBody is the bucket.Body of an object under way: magic, the source's batches, and the tail that the layout computed.
type objectBody struct {
	l   *layout
	src Source
}

func (b *objectBody) Size() int64    { return b.l.size }
func (b *objectBody) CRC32C() uint32 { return b.l.crc }

// Open begins another pass over the source.
func (b *objectBody) Open() (io.ReadCloser, error) {
	want := b.l.footerOff - int64(len(headMagic))
	if f, ok := b.src.(FileSource); ok {
		stream, err := f.Stream()
		if err != nil {
			return nil, err
		}
		return &fileReader{cur: []byte(headMagic), stream: stream, want: want, tail: b.l.tail}, nil
	}
	r := &objectReader{tail: b.l.tail, cur: []byte(headMagic), want: want}
	r.next, r.stop = iter.Pull(r.batches(b.src))
	return r, nil
}

// fileReader reads the magic, the batches of a FileSource, and the tail.
type fileReader struct {
	cur    []byte        // to be read next
	stream io.ReadCloser // then, until it ends
	want   int64         // bytes that the stream still has to give
	tail   []byte        // and then
	ended  bool
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	if len(r.cur) == 0 && !r.ended {
		n, err := r.stream.Read(p)
		if r.want -= int64(n); r.want < 0 || errors.Is(err, io.EOF) && r.want != 0 {
			return 0, errSourceChanged
		}
		if errors.Is(err, io.EOF) {
			r.cur, r.ended, err = r.tail, true, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	if len(r.cur) == 0 && r.ended {
		return 0, io.EOF
	}
	n := copy(p, r.cur)
	r.cur = r.cur[n:]
	return n, nil
}

// Close ends the pass.
func (r *fileReader) Close() error {
	r.cur, r.ended = nil, true
	return r.stream.Close()
}

// objectReader turns the source's calls into a stream. It keeps no batch: each Read copies from the one the source holds out.
type objectReader struct {
	next func() ([]byte, bool)
	stop func()
	cur  []byte // to be read next
	tail []byte // after the batches
	want int64  // bytes that the source still has to give
	err  error  // what Source.Batches returned
	done bool
}

func (r *objectReader) batches(src Source) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		stopped := false
		r.err = src.Batches(func(b []byte, _ BatchInfo) error {
			if stopped || !yield(b) {
				stopped = true
				return errStopped
			}
			return nil
		})
	}
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	for len(r.cur) == 0 {
		if r.done {
			return 0, io.EOF
		}
		b, ok := r.next()
		if !ok {
			if r.err != nil {
				return 0, fmt.Errorf("read batches: %w", r.err)
			}
			if r.want != 0 {
				return 0, errSourceChanged
			}
			r.cur, r.done = r.tail, true
			continue
		}
		if r.want -= int64(len(b)); r.want < 0 {
			return 0, errSourceChanged
		}
		r.cur = b
	}
	n := copy(p, r.cur)
	r.cur = r.cur[n:]
	return n, nil
}

// Close ends the pass.
func (r *objectReader) Close() error {
	r.stop()
	r.cur, r.done = nil, true
	return nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func updateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
