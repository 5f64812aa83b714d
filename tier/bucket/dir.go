package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Dir is a bucket in a directory: every object is a file with exactly its bytes, at the path that its key spells.
//
// A put writes a temporary file below .tierbroker/tmp, syncs it, renames it to its place and syncs the folders, so an object
// is there whole or not at all, whatever crashes. Changes of one key exclude each other by flock on one of 64 lock files,
// between processes too. The ETag is made of the file's modification time, which Dir sets itself and which rises with each
// put of a key, and its size: it is the same after a restart. Files and folders whose name begins with a dot, or is no
// escaped key, are not part of the bucket.
type Dir struct {
	root string
	id   fileID // of root when it was opened
	w    *dirWriter
	mu   sync.Mutex // w's start
}

// fileID tells whether a path still leads to the same file.
type fileID struct{ dev, ino uint64 }

// privateDir holds what is not an object.
const privateDir = ".tierbroker"

// OpenDir opens the bucket in the directory path, which is created if it is not there, and removes temporary files that
// crashed processes left. ErrConfig: path is no directory, or its file system cannot hold a bucket.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, newError("open", path, ErrConfig, err)
	}
	d, err := OpenExistingDir(path)
	if err != nil {
		return nil, err
	}
	if _, err := d.writer(); err != nil {
		return nil, err
	}
	return d, nil
}

// OpenExistingDir is OpenDir for readers: it creates nothing until something is put, so a read-only directory does.
func OpenExistingDir(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, newError("open", path, ErrConfig, err)
	}
	id, err := statID(abs)
	if err != nil {
		return nil, newError("open", path, ErrConfig, err)
	}
	return &Dir{root: abs, id: id}, nil
}

// Path is the absolute path of the directory.
func (d *Dir) Path() string { return d.root }

// Close removes the temporary files of d. Calls that come later fail or work as before; none must be under way.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.w == nil {
		return nil
	}
	w := d.w
	d.w = nil
	return w.close()
}

func statID(path string) (fileID, error) {
	st, err := os.Stat(path)
	if err != nil {
		return fileID{}, err
	}
	if !st.IsDir() {
		return fileID{}, errors.New("it is no directory")
	}
	return idOf(st), nil
}

func idOf(st fs.FileInfo) fileID {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fileID{dev: uint64(s.Dev), ino: s.Ino}
	}
	return fileID{}
}

// missing makes the error for a file that is not there. A whole bucket that has gone (unmounted, renamed) must not look
// like an empty one: somebody would take that for a fact and start from scratch.
func (d *Dir) missing(verb, key string) error {
	if err := d.present(verb, key); err != nil {
		return err
	}
	return newError(verb, key, ErrNotFound, nil)
}

func (d *Dir) present(verb, key string) error {
	id, err := statID(d.root)
	if err == nil && id != d.id {
		err = errors.New("another directory has taken its place")
	}
	if err != nil {
		return newError(verb, key, ErrUnavailable, fmt.Errorf("the bucket's directory %s is gone: %w", d.root, err))
	}
	return nil
}

// path is where key lives.
func (d *Dir) path(key string) string { return filepath.Join(d.root, escapeKey(key)) }

// escapeKey maps a key to a relative path: names with a leading dot are ours, so such segments are escaped.
func escapeKey(key string) string {
	if key[0] != '.' && !strings.Contains(key, "/.") {
		return key
	}
	segs := strings.Split(key, "/")
	for i, s := range segs {
		if s[0] == '.' {
			segs[i] = "%2E" + s[1:]
		}
	}
	return strings.Join(segs, "/")
}

// unescapeName is the reverse for one name; false means that no key has this name.
func unescapeName(name string) (string, bool) {
	if rest, ok := strings.CutPrefix(name, "%2E"); ok {
		name = "." + rest
	} else if name[0] == '.' {
		return "", false
	}
	return name, CheckKey(name) == nil
}

func fileInfo(key string, st fs.FileInfo) Info {
	return Info{Key: key, Size: st.Size(), ETag: etag(st.ModTime(), st.Size()), Modified: st.ModTime()}
}

func etag(t time.Time, size int64) string {
	return strconv.FormatInt(t.UnixNano(), 16) + "-" + strconv.FormatInt(size, 16)
}

// open returns the file of key, open for reading, and its Info, which belong together even if the key is replaced meanwhile.
func (d *Dir) open(ctx context.Context, verb, key string) (*os.File, Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, Info{}, newError(verb, key, ErrUnavailable, err)
	}
	f, err := os.Open(d.path(key))
	if isMissing(err) {
		return nil, Info{}, d.missing(verb, key)
	}
	if err != nil {
		return nil, Info{}, fileError(verb, key, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, Info{}, errors.Join(fileError(verb, key, err), f.Close())
	}
	return f, fileInfo(key, st), nil
}

// Get implements Bucket.
func (d *Dir) Get(ctx context.Context, _ Op, key string, off, n int64, dst []byte) (int, Info, error) {
	if err := CheckGet(key, off, n, dst); err != nil {
		return 0, Info{}, err
	}
	f, info, err := d.open(ctx, "get", key)
	if err != nil {
		return 0, Info{}, err
	}
	defer f.Close()
	if off+n > info.Size {
		return 0, info, rangeError(key, off, n, info.Size)
	}
	if _, err := f.ReadAt(dst[:n], off); err != nil && n > 0 {
		return 0, info, fileError("get", key, err)
	}
	return int(n), info, nil
}

// GetWhole implements Whole.
func (d *Dir) GetWhole(ctx context.Context, _ Op, key string, limit int64) ([]byte, Info, error) {
	if err := CheckKey(key); err != nil {
		return nil, Info{}, err
	}
	f, info, err := d.open(ctx, "get", key)
	if err != nil {
		return nil, Info{}, err
	}
	defer f.Close()
	if info.Size > limit {
		return nil, info, sizeError(key, info.Size, limit)
	}
	buf := make([]byte, info.Size)
	if _, err := io.ReadFull(f, buf); err != nil {
		return nil, info, fileError("get", key, err)
	}
	return buf, info, nil
}

// Stat implements Bucket.
func (d *Dir) Stat(ctx context.Context, _ Op, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, newError("stat", key, ErrUnavailable, err)
	}
	st, err := os.Lstat(d.path(key))
	if isMissing(err) || err == nil && !st.Mode().IsRegular() {
		return Info{}, d.missing("stat", key)
	}
	if err != nil {
		return Info{}, fileError("stat", key, err)
	}
	return fileInfo(key, st), nil
}

// Uploads implements Bucket: there are none.
func (d *Dir) Uploads(context.Context, Op, string, bool) ([]Upload, error) { return nil, nil }

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// fileError maps an error of the file system to a sentinel.
func fileError(verb, key string, err error) error {
	kind := ErrUnavailable
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case isMissing(err):
		kind = ErrNotFound
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		kind = ErrDenied
	case errors.Is(err, syscall.ENAMETOOLONG):
		kind = ErrKey
	}
	return newError(verb, key, kind, err)
}
