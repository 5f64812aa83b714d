package segment

import (
	"errors"
	"fmt"
)

// Errors to act on; test with errors.Is.
var (
	// ErrPoisoned: a write or fdatasync failed, and nothing is taken until Reopen. The
	// cause is wrapped beside it.
	ErrPoisoned = errors.New("segment: log is poisoned by an earlier failure")
	// ErrFull: there is no room for a new file, or it would eat into Options.MinFree.
	// Later calls succeed by themselves once there is room again.
	ErrFull = errors.New("segment: no space for a new file")
	// ErrBusy: the queue stayed full, or a new file was still being allocated, for
	// longer than Options.MaxWait. Trying again is fine.
	ErrBusy = errors.New("segment: too much waits for the disk")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("segment: log is closed")
	// ErrTooLarge: the frame fits into no file, or passes the limits of package frame.
	ErrTooLarge = errors.New("segment: frame too large")
	// ErrNotFound: no file, or no readable bytes, at this position.
	ErrNotFound = errors.New("segment: nothing at this position")
	// ErrInUse: the file may not be dropped (now).
	ErrInUse = errors.New("segment: file can't be dropped")
	// ErrLeaked: references were still held when the log was closed.
	ErrLeaked = errors.New("segment: references not released")
	// ErrVersion: a file was written by a newer program.
	ErrVersion = errors.New("segment: unknown file version")
	// ErrFault: reading a mapping failed (the disk could not deliver the page, or the
	// file was cut under it).
	ErrFault = errors.New("segment: fault in a mapping")
	// ErrFormat: bytes that are no file header, seal, or quarantine file.
	ErrFormat = errors.New("segment: not a valid file")
)

// PoisonError says from where on the log failed and why. It is an ErrPoisoned.
type PoisonError struct {
	At    uint64 // first position that is lost
	Cause error
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("%v: lost from position %d on: %v", ErrPoisoned, e.At, e.Cause)
}

// Unwrap makes the error match ErrPoisoned and its cause.
func (e *PoisonError) Unwrap() []error { return []error{ErrPoisoned, e.Cause} }
