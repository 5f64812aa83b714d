package wal

import (
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/tier"
)

// Errors to act on. Everything else matches one of package tier's (ErrCorrupt, ErrFeature), of package bucket's, or the context's.
var (
	// ErrSealed: a successor has ended the stream, or another writer has it. This run of the broker is dead to its partitions.
	ErrSealed = errors.New("WAL stream is sealed")
	// ErrNotSealed: the stream has no seal that holds. Its writer may be alive.
	ErrNotSealed = errors.New("WAL stream is not sealed")
	// ErrClosed: the writer was closed.
	ErrClosed = errors.New("WAL writer is closed")
	// ErrTooLarge: more than an object may hold.
	ErrTooLarge = errors.New("too large for a WAL object")
	// ErrNotContiguous: batches of a part don't follow each other, or a partition's parts go back.
	ErrNotContiguous = errors.New("batches do not follow each other")
)

func corrupt(part, format string, args ...any) error {
	return &tier.CorruptError{Part: part, Reason: fmt.Sprintf(format, args...)}
}

func featureError(what string, v uint64) error {
	return fmt.Errorf("%s %d: %w", what, v, tier.ErrFeature)
}

// withKey names the object in what a decoder returned.
func withKey(err error, key string) error {
	var c *tier.CorruptError
	if errors.As(err, &c) && c.Key == "" {
		return &tier.CorruptError{Key: key, Part: c.Part, Reason: c.Reason}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", key, err)
}
