package index

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

var (
	// ErrCorrupt: the store is unreadable or failed for good. Close it, remove its
	// directory, rebuild it.
	ErrCorrupt = errors.New("index: store is unreadable")
	// ErrVersion: the store was written by a newer program.
	ErrVersion = errors.New("index: store has a newer format")
	// ErrLocked: another process, or another Store, has the directory open.
	ErrLocked = errors.New("index: directory is in use")
	// ErrStalled: memory is full and can't be flushed now (a full disk, mostly). Nothing was
	// committed; try again later. Open returns it on a full disk.
	ErrStalled = errors.New("index: cannot flush")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("index: closed")
)

// environment are the errors that say nothing about the store's content.
var environment = []error{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOTDIR,
}

// lockError tells a directory in use from one that can't be written.
func lockError(dir string, err error) error {
	if isEnvironment(err) {
		return fmt.Errorf("index: lock %s: %w", dir, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrLocked, dir, err)
}

func isEnvironment(err error) bool {
	for _, e := range environment {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// openError tells a broken store from one that merely can't be opened now. In doubt it is
// broken: a rebuild loses nothing.
func openError(dir string, err error) error {
	if isEnvironment(err) {
		return fmt.Errorf("index: open %s: %w", dir, err)
	}
	return fmt.Errorf("%w: open %s: %w", ErrCorrupt, dir, err)
}

// readError wraps an error of a read or write in an open store.
func readError(what string, err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	return fmt.Errorf("index: %s: %w", what, err)
}

// badValue reports a value that no program of this format wrote.
func badValue(what string) error {
	return fmt.Errorf("%w: bad %s", ErrCorrupt, what)
}
