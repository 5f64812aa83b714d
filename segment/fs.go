package segment

// FS is the file layer under the log. The log calls it from several goroutines.
// OSFS is the real one; FaultFS fails or crashes at a chosen call.
type FS interface {
	// MkdirAll makes a directory and its parents.
	MkdirAll(dir string) error
	// Open opens a file for reading and writing; create makes it when it is missing.
	Open(path string, create bool) (File, error)
	// Rename gives a file another name, replacing what had it.
	Rename(from, to string) error
	// Remove deletes a file. A missing one is an error that is fs.ErrNotExist.
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// List returns the regular files of a directory, sorted by name. A missing
	// directory is an empty one.
	List(dir string) ([]FileStat, error)
	// Free returns how many bytes an unprivileged user can still allocate.
	Free(dir string) (int64, error)
}

// FileStat is one entry of a directory; Disk is the allocated size in bytes.
type FileStat struct {
	Name string
	Size int64
	Disk int64
}

// File is an open file. Writev, ReadAt and Sync may be called concurrently.
type File interface {
	// Writev writes at most MaxPieces buffers one after the other at off and returns
	// the bytes written; fewer than all means an error.
	Writev(bufs [][]byte, off int64) (int, error)
	// ReadAt is io.ReaderAt's.
	ReadAt(p []byte, off int64) (int, error)
	// Sync is fdatasync.
	Sync() error
	// Allocate makes sure that [0, size) has blocks and that the file is exactly size
	// bytes long. A full disk is an error that is syscall.ENOSPC.
	Allocate(size int64) error
	// Truncate sets the length.
	Truncate(size int64) error
	// Map maps [0, size) for reading, shared. It may be called once; Close unmaps.
	Map(size int64) ([]byte, error)
	// Close unmaps and closes.
	Close() error
}

// MaxPieces is how many buffers one Writev takes (Linux's IOV_MAX).
const MaxPieces = 1024
