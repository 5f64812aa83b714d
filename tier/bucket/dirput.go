package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// putTries bounds how often a put creates folders again that deletes prune at the same time.
const putTries = 1000

// Put implements Bucket.
func (d *Dir) Put(ctx context.Context, _ Op, key string, body Body, cond Condition) (Info, error) {
	if err := CheckPut(key, body, cond); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, newError("put", key, ErrUnavailable, err)
	}
	w, err := d.writer()
	if err != nil {
		return Info{}, err
	}
	tmp, err := w.temp(key, body)
	if err != nil {
		if isMissing(err) {
			return Info{}, newError("put", key, ErrUnavailable, err)
		}
		return Info{}, fileError("put", key, err)
	}
	info, err := d.place(ctx, w, tmp, key, cond)
	if err != nil {
		return Info{}, errors.Join(err, ignoreMissing(os.Remove(tmp)))
	}
	return info, nil
}

// temp writes body to a new temporary file and syncs it.
func (w *dirWriter) temp(key string, body Body) (string, error) {
	f, err := os.CreateTemp(w.tmp, "put-*")
	if err != nil {
		return "", err
	}
	err = copyBody(newFileWriter(f, body.Size()), key, body)
	if err == nil {
		err = touch(f.Name(), time.Now())
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(err, ignoreMissing(os.Remove(f.Name())))
	}
	return f.Name(), nil
}

// place moves tmp to key's path if cond holds, under the lock of key.
func (d *Dir) place(ctx context.Context, w *dirWriter, tmp, key string, cond Condition) (Info, error) {
	unlock, err := w.lock(ctx, key)
	if err != nil {
		return Info{}, newError("put", key, ErrUnavailable, err)
	}
	defer unlock()
	if err := d.present("put", key); err != nil {
		return Info{}, err
	}
	path := d.path(key)
	var old *Info
	st, err := os.Lstat(path)
	switch {
	case err == nil && st.Mode().IsRegular():
		info := fileInfo(key, st)
		old = &info
	case err != nil && !isMissing(err):
		return Info{}, fileError("put", key, err)
	}
	if err := checkCondition(key, cond, old); err != nil {
		return Info{}, err
	}
	if old != nil {
		if err := raise(tmp, old.Modified); err != nil {
			return Info{}, fileError("put", key, err)
		}
	}
	if err := d.rename(w, tmp, path, key); err != nil {
		return Info{}, err
	}
	if st, err = os.Lstat(path); err != nil {
		return Info{}, newError("put", key, ErrUnavailable, err)
	}
	return fileInfo(key, st), nil
}

// raise makes tmp's time later than the old object's: the ETag must change even if the clock stands still or went back.
func raise(tmp string, old time.Time) error {
	st, err := os.Lstat(tmp)
	if err != nil || st.ModTime().After(old) {
		return err
	}
	if err := touch(tmp, old.Add(1)); err != nil {
		return err
	}
	return syncPath(tmp)
}

// rename moves tmp to path, creating the folders, and makes that durable.
func (d *Dir) rename(w *dirWriter, tmp, path, key string) error {
	dir := filepath.Dir(path)
	for range putTries {
		err := w.makeDirs(d.root, dir)
		if err == nil {
			err = os.Rename(tmp, path)
		}
		if err == nil {
			err = syncPath(dir)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist):
			// A folder without objects may be in the way: what a crash between a delete and its pruning leaves.
			if os.Remove(path) == nil {
				continue
			}
			return folderError(key)
		case errors.Is(err, fs.ErrNotExist):
			w.forget(d.root, dir)
		default:
			return fileError("put", key, err)
		}
	}
	return newError("put", key, ErrUnavailable, errors.New("its folder is removed again and again"))
}

// makeDirs creates dir below root and makes it durable, unless that is known to have been done.
func (w *dirWriter) makeDirs(root, dir string) error {
	if dir == root || w.isKnown(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := w.makeDirs(root, parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		st, err := os.Lstat(dir)
		if err != nil {
			return err // pruned since: the caller tries again
		}
		if !st.IsDir() {
			return syscall.ENOTDIR
		}
	} else if err != nil {
		return err
	}
	if err := syncPath(parent); err != nil {
		return err
	}
	w.know(dir)
	return nil
}

// Delete implements Bucket.
func (d *Dir) Delete(ctx context.Context, _ Op, keys []string) error {
	failed := failures{}
	if len(keys) == 0 {
		return nil
	}
	w, err := d.writer()
	if err != nil {
		return err
	}
	dirs := map[string]bool{}
	for _, key := range keys {
		if err := d.remove(ctx, w, key, dirs); err != nil {
			failed[key] = err
		}
	}
	// Folders from the deepest up, so that a parent is tried after its children.
	list := make([]string, 0, len(dirs))
	for dir := range dirs {
		list = append(list, dir)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	for _, dir := range list {
		if err := d.prune(w, dir); err != nil {
			return newError("delete", "", ErrUnavailable, err)
		}
	}
	return failed.err()
}

func (d *Dir) remove(ctx context.Context, w *dirWriter, key string, dirs map[string]bool) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	unlock, err := w.lock(ctx, key)
	if err != nil {
		return newError("delete", key, ErrUnavailable, err)
	}
	defer unlock()
	path := d.path(key)
	st, err := os.Lstat(path)
	if isMissing(err) || err == nil && st.IsDir() {
		return d.present("delete", key)
	}
	if err == nil {
		err = ignoreMissing(os.Remove(path))
	}
	if err != nil {
		return fileError("delete", key, err)
	}
	dirs[filepath.Dir(path)] = true
	return nil
}

// prune makes removals in dir durable and removes it and its parents as far as they are empty: rmdir fails on others.
func (d *Dir) prune(w *dirWriter, dir string) error {
	for {
		if err := ignoreMissing(syncPath(dir)); err != nil {
			return err
		}
		if dir == d.root || !strings.HasPrefix(dir, d.root) {
			return nil
		}
		w.forget(d.root, dir)
		err := syscall.Rmdir(dir)
		w.forget(d.root, dir)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return nil // not empty, or not ours to remove: it stays
		}
		dir = filepath.Dir(dir)
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncPath makes the file or folder at path durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func touch(path string, t time.Time) error { return os.Chtimes(path, t, t) }
