package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// etcd ends the process, with a stack trace of its own, at files that it can't read. So they are read before it starts: what
// is damaged becomes a *DamageError that names the file. What gets past this is caught by guard, as far as etcd reports it
// through its logger.

// files of an embedded etcd.
func (e *Embedded) walDir() string { return filepath.Join(e.dir, memberDir, "member", "wal") }
func (e *Embedded) dbPath() string { return filepath.Join(e.dir, memberDir, "member", "snap", "db") }

// DamageError says which file of the embedded etcd is damaged, and how. It is an ErrDamaged.
type DamageError struct {
	Path, Reason string
}

// Error is one sentence.
func (e *DamageError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrDamaged, e.Path, e.Reason) }

// Unwrap makes errors.Is(err, ErrDamaged) true.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// checkFiles holds database and log of an earlier run against each other. A directory without both is a new one, and one
// with an unused database is what a first start left behind that was killed.
func (e *Embedded) checkFiles() error {
	hasLog, err := e.hasLog()
	if err != nil {
		return err
	}
	info, err := os.Stat(e.dbPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start etcd: %w", err)
	}
	var db boltState
	hasDB := err == nil && info.Size() > 0
	if hasDB {
		if db, err = checkBolt(e.dbPath()); err != nil {
			return err
		}
	}
	if !hasLog {
		if db.keys > 0 || db.applied > 0 {
			return &DamageError{e.walDir(), "the log is missing, and the database beside it is not empty"}
		}
		return nil
	}
	snapshot, last, err := e.checkLog()
	switch {
	case err != nil:
		return err
	case snapshot > 0 && !hasDB:
		return &DamageError{e.dbPath(), "the database is missing or empty, and the log beside it begins later"}
	case db.applied < snapshot:
		return &DamageError{e.dbPath(), fmt.Sprintf("the database ends at entry %d, and the log begins at %d", db.applied, snapshot)}
	case db.applied > last:
		return &DamageError{e.walDir(), fmt.Sprintf("the log ends at entry %d, and the database has %d", last, db.applied)}
	}
	return nil
}

func (e *Embedded) hasLog() (bool, error) {
	files, err := filepath.Glob(filepath.Join(e.walDir(), "*.wal"))
	return len(files) > 0, err
}

// checkLog reads the whole log. It returns the entry of its newest snapshot, and its last entry.
func (e *Embedded) checkLog() (snapshot, last uint64, err error) {
	dir := e.walDir()
	damaged := func(err error) error { return &DamageError{dir, "the log can't be read: " + err.Error()} }
	defer func() {
		if v := recover(); v != nil { // etcd panics at a record that it can't decode
			err = damaged(fmt.Errorf("%v", v))
		}
	}()
	lg := zap.NewNop()
	snaps, err := wal.ValidSnapshotEntries(lg, dir)
	if err != nil {
		return 0, 0, damaged(err)
	}
	from := &walpb.Snapshot{}
	if len(snaps) > 0 {
		from = snaps[len(snaps)-1]
	}
	w, err := wal.OpenForRead(lg, dir, from)
	if err != nil {
		return 0, 0, damaged(err)
	}
	defer w.Close() //nolint:errcheck // it always fails for a log that is only read: there is no directory to close
	metadata, state, entries, err := w.ReadAll()
	if err != nil {
		return 0, 0, damaged(err)
	}
	last = from.GetIndex()
	if n := len(entries); n > 0 {
		last = entries[n-1].GetIndex()
	}
	switch {
	case len(metadata) == 0:
		return 0, 0, damaged(errors.New("it does not say whose it is"))
	case state.GetCommit() > last:
		return 0, 0, damaged(fmt.Errorf("it ends at entry %d, and %d was committed", last, state.GetCommit()))
	}
	return from.GetIndex(), last, nil
}
