package tier

import (
	"errors"
	"fmt"
)

// Errors to act on. Everything this package returns matches one of them, or one of package bucket's, or the context's error.
var (
	// ErrNoHead: the partition has no head. It was never claimed, or it was destroyed.
	ErrNoHead = errors.New("partition has no head")
	// ErrFenced: another owner, or a later epoch, holds the head. The caller must stop writing.
	ErrFenced = errors.New("fenced by another owner or epoch")
	// ErrConflict: another attempt of the same owner won. The newer head is returned with it; apply the change to that one.
	ErrConflict = errors.New("head was changed by another attempt of the same owner")
	// ErrInDoubt: the context ended before it was known whether the head was swapped. Load the head before anything else.
	ErrInDoubt = errors.New("outcome of the head's swap is unknown")
	// ErrHeadRegressed: the bucket showed an older head than it had shown before, or none. Nothing may be built on that.
	ErrHeadRegressed = errors.New("head went back to an older version")
	// ErrTombstone: the topic was deleted.
	ErrTombstone = errors.New("partition is deleted")
	// ErrOffsetOutOfRange: the offset lies outside of the archive's [Start, End).
	ErrOffsetOutOfRange = errors.New("offset lies outside of the archive")
	// ErrNotContiguous: batches or extents leave a hole or overlap.
	ErrNotContiguous = errors.New("offsets are not contiguous")
	// ErrCorrupt: bytes in the bucket are not what was written. See CorruptError.
	ErrCorrupt = errors.New("corrupt object")
	// ErrGone: an object that the head names does not exist any more. The head is old: load it and read again.
	ErrGone = errors.New("object is gone")
	// ErrFeature: written by a newer version in a way that this one must not ignore.
	ErrFeature = errors.New("needs a newer version")
	// ErrTooLarge: something passes a limit of its format.
	ErrTooLarge = errors.New("too large for its format")
	// ErrCeiling: an offset at or above the head's ceiling.
	ErrCeiling = errors.New("offset reaches the head's ceiling")
)

// CorruptError says which bytes are bad. It matches ErrCorrupt.
type CorruptError struct {
	Key    string // object, empty while only bytes are looked at
	Part   string // "trailer", "block 17", "head", ...
	Reason string
}

// Error is one sentence with the place and the reason.
func (e *CorruptError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s is corrupt: %s", e.Part, e.Reason)
	}
	return fmt.Sprintf("%s of %s is corrupt: %s", e.Part, e.Key, e.Reason)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

func corrupt(part, format string, args ...any) error {
	return &CorruptError{Part: part, Reason: fmt.Sprintf(format, args...)}
}

// withKey names the object in a CorruptError that a decoder returned, and wraps everything else.
func withKey(err error, key string) error {
	var c *CorruptError
	if errors.As(err, &c) && c.Key == "" {
		return &CorruptError{Key: key, Part: c.Part, Reason: c.Reason}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", key, err)
}
