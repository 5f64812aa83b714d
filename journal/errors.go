package journal

import "errors"

// Errors that callers act on.
var (
	// ErrNotCoordinator: the shard isn't here, or its machine was thrown away before the operation was durable. Whether
	// what the operation did will be seen is not known: the caller asks the next owner, which may be this one again.
	ErrNotCoordinator = errors.New("this broker is not the coordinator")
	// ErrLoading: the shard is being rebuilt from its partition; the operation did not run.
	ErrLoading = errors.New("the coordinator is loading")
	// ErrOverloaded: too many records wait for the disk; the operation did not run.
	ErrOverloaded = errors.New("the coordinator waits for the disk")
	// ErrNoShard: there is no shard of that number.
	ErrNoShard = errors.New("no such shard")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)
