package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tierbroker/tierbroker/frame"
)

// A quarantine file keeps the frames of one partition that kept a log file from being dropped: damaged, unknown to the
// cluster, or refused by the bucket. It lies in <dir>/quarantine, is named <topic id>-<partition>-<base of the log file>.q,
// and holds whole frames as they were in the log, one behind the other, padded to 8 bytes. Nothing deletes it but an
// operator.

const quarantineDir = "quarantine"

// QuarantineFile describes one quarantine file.
type QuarantineFile struct {
	Path  string
	Bytes int64
}

// maxQuarantineChunk is how many bytes are gathered before they are written.
const maxQuarantineChunk = 1 << 20

// Quarantine copies the data frames of one partition in the log file that starts at fileBase, from fromOffset on, into a
// quarantine file, and returns how many there were. It is durable when it returns; repeating it writes the same file again.
// Frames whose payload fails its checksum are copied too, as they are: what they hold may still be worth something.
func (l *Log) Quarantine(fileBase uint64, id frame.PartitionID, fromOffset int64) (int, error) {
	ref, ok := l.Acquire(fileBase)
	if !ok {
		return 0, fmt.Errorf("%w: no file at %d", ErrNotFound, fileBase)
	}
	defer ref.Release()
	w := quarantineWriter{fs: l.fs, dir: l.path(quarantineDir), name: fmt.Sprintf("%s-%d-%016x.q", id.Topic, id.Partition, fileBase)}
	s := &scanner{f: ref.f.h.f, base: ref.f.base, limit: ref.f.end.Load(), incarnation: ref.f.incarnation}
	frames := 0
	for pos := ref.f.first(); pos < s.limit; {
		h, hlen, ok, err := s.header(pos)
		if err != nil {
			return frames, errors.Join(err, w.abandon())
		}
		if !ok {
			next, found, err := s.resync(pos + 8)
			if err != nil || !found {
				return frames, errors.Join(err, w.finish())
			}
			pos = next
			continue
		}
		n := FrameLen(hlen, int(h.PayloadLen))
		if h.Type == frame.Data && h.ID == id && h.BaseOffset+int64(h.RecordCount) > fromOffset {
			b, err := s.window(pos, n)
			if err == nil {
				err = w.add(b)
			}
			if err != nil {
				return frames, errors.Join(err, w.abandon())
			}
			frames++
		}
		pos += uint64(n)
	}
	return frames, w.finish()
}

// quarantineWriter makes the file under a temporary name; nothing is left when there was no frame.
type quarantineWriter struct {
	fs        FS
	dir, name string
	f         File
	buf       []byte
	off       int64
}

func (w *quarantineWriter) temp() string { return filepath.Join(w.dir, w.name+".tmp") }

func (w *quarantineWriter) add(b []byte) error {
	if w.f == nil {
		if err := w.fs.MkdirAll(w.dir); err != nil {
			return err
		}
		f, err := w.fs.Open(w.temp(), true)
		if err != nil {
			return err
		}
		w.f = f
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, b...)
	if len(w.buf) >= maxQuarantineChunk {
		return w.flush()
	}
	return nil
}

func (w *quarantineWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	n, err := w.f.Writev([][]byte{w.buf}, w.off)
	w.off += int64(n)
	w.buf = w.buf[:0]
	return err
}

// finish makes the file durable under its name.
func (w *quarantineWriter) finish() error {
	if w.f == nil {
		return nil
	}
	err := w.flush()
	if err == nil {
		err = w.f.Sync()
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return fmt.Errorf("segment: quarantine file %s: %w", w.name, err)
	}
	if err := w.fs.Rename(w.temp(), filepath.Join(w.dir, w.name)); err != nil {
		return err
	}
	return w.fs.SyncDir(w.dir)
}

func (w *quarantineWriter) abandon() error {
	if w.f == nil {
		return nil
	}
	return errors.Join(w.f.Close(), w.fs.Remove(w.temp()))
}

// Quarantined lists the quarantine files of the log.
func (l *Log) Quarantined() ([]QuarantineFile, error) {
	stats, err := l.fs.List(l.path(quarantineDir))
	if err != nil {
		return nil, err
	}
	var out []QuarantineFile
	for _, s := range stats {
		if strings.HasSuffix(s.Name, ".q") {
			out = append(out, QuarantineFile{Path: filepath.Join(l.path(quarantineDir), s.Name), Bytes: s.Size})
		}
	}
	return out, nil
}

// ReadQuarantine calls fn for the frames of a quarantine file in order; payloads are valid during the call and may be damaged
// (bad says how). It stops at the first bytes that are no frame.
func ReadQuarantine(fs FS, path string, fn func(f Frame, bad error) error) error {
	f, err := fs.Open(path, false)
	if err != nil {
		return err
	}
	stats, err := fs.List(filepath.Dir(path))
	size := int64(0)
	for _, s := range stats {
		if s.Name == filepath.Base(path) {
			size = s.Size
		}
	}
	s := &scanner{f: f, limit: uint64(size)}
	for pos := uint64(0); err == nil && pos < s.limit; {
		var b []byte
		if b, err = s.window(pos, frame.MaxHeaderLen+frame.CoveredPayload); err != nil {
			break
		}
		h, hlen, derr := frame.Decode(b)
		n := uint64(FrameLen(hlen, int(h.PayloadLen)))
		if derr != nil || n > s.limit-pos {
			err = fmt.Errorf("%w: no frame at byte %d of %s", ErrNotFound, pos, path)
			break
		}
		var bad error
		var p []byte
		if p, bad, err = s.payload(pos, &h, hlen); err == nil {
			err = fn(Frame{Header: h, Payload: p}, bad)
		}
		pos += n
	}
	return errors.Join(err, f.Close())
}
