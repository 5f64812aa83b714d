package partition

import "errors"

// Errors that callers act on. Everything else a method returns is one of these wrapped with the place it
// happened at, an error of package batch (the producer's batch is at fault), or the context's error.
var (
	// ErrNotOwner: this broker doesn't hold the partition in a state that serves the request.
	ErrNotOwner = errors.New("partition is not owned by this broker")
	// ErrFencedEpoch: the caller's leader epoch is older than the partition's.
	ErrFencedEpoch = errors.New("leader epoch is older than the partition's epoch")
	// ErrUnknownEpoch: the caller's leader epoch is newer than the partition's.
	ErrUnknownEpoch = errors.New("leader epoch is newer than the partition's epoch")
	// ErrMoved: the log doesn't end where the caller of an exact append believes. Nothing was appended.
	ErrMoved = errors.New("the log ends at another offset than expected")
	// ErrOffsetOutOfRange: the offset lies before the start offset or after the durable offset.
	ErrOffsetOutOfRange = errors.New("offset is out of range")
	// ErrOutOfOrderSequence: an idempotent producer left a gap in its sequence numbers.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrDuplicateSequence: the sequence was seen, too long ago for its offset to be known.
	ErrDuplicateSequence = errors.New("duplicate sequence number")
	// ErrProducerFenced: a newer epoch of the same producer id has written here.
	ErrProducerFenced = errors.New("producer epoch is older than the latest one seen")
	// ErrStorage: the local log can't take the write: disk full or over budget, a failed write or fdatasync,
	// or the offset ceiling couldn't be raised because the bucket doesn't answer.
	ErrStorage = errors.New("the commit log can't take the write")
	// ErrUnavailable: the bucket doesn't answer, so cold data or a head can't be had now.
	ErrUnavailable = errors.New("the bucket is unavailable")
	// ErrCorrupt: stored data failed its checksum; it is never served.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrFencedRun: a successor has taken over for this run of the broker; a new one may begin.
	ErrFencedRun = errors.New("this run of the broker was fenced")
	// ErrClosing: the broker is shutting down.
	ErrClosing = errors.New("the broker is shutting down")
)
