package bucket

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// copyBytes is how much of a body is copied at once: enough for few system calls, little enough for the processor's cache.
	copyBytes = 512 << 10
	// blockBytes is what unbuffered writes are aligned to, in memory and in the file.
	blockBytes = 4 << 10
)

// copyBuffers holds aligned buffers of copyBytes.
var copyBuffers = sync.Pool{New: func() any {
	b := make([]byte, copyBytes+blockBytes)
	off := -int(uintptr(unsafe.Pointer(&b[0]))) & (blockBytes - 1)
	b = b[off : off+copyBytes : off+copyBytes]
	return &b
}}

// copyBody writes body to w and checks its size and checksum.
func copyBody(w io.Writer, key string, body Body) error {
	r, err := body.Open()
	if err != nil {
		return newError("put", key, ErrRefused, fmt.Errorf("open the body: %w", err))
	}
	// One byte more than promised is enough to notice that there is more.
	n, crc, err := copyLimited(w, r, body.Size()+1)
	err = errors.Join(err, r.Close())
	switch {
	case err != nil:
		return fileError("put", key, err)
	case n != body.Size():
		return newError("put", key, ErrCorrupt, fmt.Errorf("the body has other than the %d bytes promised", body.Size()))
	case crc != body.CRC32C():
		return newError("put", key, ErrCorrupt, fmt.Errorf("the body's CRC32C is %08x, %08x was promised", crc, body.CRC32C()))
	}
	return nil
}

// copyLimited copies up to limit bytes and returns how many there were, and their checksum.
func copyLimited(w io.Writer, r io.Reader, limit int64) (n int64, crc uint32, err error) {
	var buf []byte
	if limit < copyBytes {
		buf = make([]byte, limit)
	} else {
		b := copyBuffers.Get().(*[]byte)
		defer copyBuffers.Put(b)
		buf = *b
	}
	for n < limit {
		k, err := io.ReadFull(r, buf[:min(int64(len(buf)), limit-n)])
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return n, crc, err
		}
		crc = crc32.Update(crc, castagnoli, buf[:k])
		if _, err := w.Write(buf[:k]); err != nil {
			return n, crc, err
		}
		n += int64(k)
		if ended {
			break
		}
	}
	return n, crc, nil
}

// fileWriter writes large objects past the page cache where the file system allows that: nobody reads an object soon after it was
// written, and the memory is worth more to what is. It is also the cheapest way in processor time.
type fileWriter struct {
	f      *os.File
	direct bool
}

// newFileWriter writes to f, which is empty, what will be size bytes.
func newFileWriter(f *os.File, size int64) *fileWriter {
	w := &fileWriter{f: f}
	w.direct = size >= copyBytes && w.setDirect(true) == nil
	return w
}

func (w *fileWriter) setDirect(on bool) error {
	fd := w.f.Fd()
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	flags &^= unix.O_DIRECT
	if on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
	return err
}

// Write implements io.Writer. Until the first piece that is no multiple of blockBytes, pieces go past the page cache.
func (w *fileWriter) Write(p []byte) (n int, err error) {
	if whole := len(p) &^ (blockBytes - 1); w.direct && whole > 0 {
		n, err = w.f.Write(p[:whole])
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return n, err
		}
	}
	if n == len(p) {
		return n, nil
	}
	// The end of the object, or a file system that wants another alignment.
	if w.direct {
		if err := w.setDirect(false); err != nil {
			return n, &os.PathError{Op: "fcntl", Path: w.f.Name(), Err: err}
		}
		w.direct = false
	}
	k, err := w.f.Write(p[n:])
	return n + k, err
}
