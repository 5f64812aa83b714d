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
// with an unused database is what a first start left behind that was killed. One that was killed a moment later leaves an
// unborn member: alone says that it stands alone, and then it is removed and begins again.
func (e *Embedded) checkFiles(alone bool) error {
	if err := os.RemoveAll(filepath.Join(e.dir, unbornDir)); err != nil { // a kill has stopped beginAgain
		return fmt.Errorf("start etcd: %w", err)
	}
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
	if hasDB && !hasLog && boltTorn(e.dbPath()) {
		if err := os.Remove(e.dbPath()); err != nil {
			return fmt.Errorf("start etcd: %w", err)
		}
		return nil
	}
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
	log, err := e.checkLog()
	switch {
	case err != nil:
		return err
	case alone && hasDB && log.unborn(db):
		return e.beginAgain()
	case log.snapshot > 0 && !hasDB:
		return &DamageError{e.dbPath(), "the database is missing or empty, and the log beside it begins later"}
	case alone && !hasDB && log.unborn(db):
		return &DamageError{e.dbPath(), "the database is missing or empty, and the log beside it has nothing"}
	case db.applied < log.snapshot:
		return &DamageError{e.dbPath(), fmt.Sprintf("the database ends at entry %d, and the log begins at %d", db.applied, log.snapshot)}
	case db.applied > log.last:
		return &DamageError{e.walDir(), fmt.Sprintf("the log ends at entry %d, and the database has %d", log.last, db.applied)}
	}
	return nil
}

// beginAgain removes an unborn member. The rename makes it one step: half a member would look like a damaged one.
func (e *Embedded) beginAgain() error {
	unborn := filepath.Join(e.dir, unbornDir)
	if err := os.Rename(filepath.Join(e.dir, memberDir), unborn); err != nil {
		return fmt.Errorf("start etcd: remove what a first start left that was killed: %w", err)
	}
	d, err := os.Open(e.dir)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close(), os.RemoveAll(unborn)); err != nil {
		return fmt.Errorf("start etcd: remove what a first start left that was killed: %w", err)
	}
	return nil
}

func (e *Embedded) hasLog() (bool, error) {
	files, err := filepath.Glob(filepath.Join(e.walDir(), "*.wal"))
	return len(files) > 0, err
}

// logState is what checkFiles wants to know of the log.
type logState struct {
	snapshot, last uint64 // entries: that of its newest snapshot, and its last one
	blank          bool   // it has never noted a term, a vote or a commit
}

// unborn: the log was made and the member killed before it had noted its first entry, the one that makes it a member of its
// own cluster. Such a member never elects itself. The database may have that entry already, since both are written at once. A
// member that has ever confirmed anything, or voted, has a log that says so.
func (l logState) unborn(db boltState) bool {
	return l.blank && l.snapshot == 0 && l.last <= 1 && db.applied <= 1 && db.keys == 0
}

// checkLog reads the whole log.
func (e *Embedded) checkLog() (l logState, err error) {
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
		return l, damaged(err)
	}
	from := &walpb.Snapshot{}
	if len(snaps) > 0 {
		from = snaps[len(snaps)-1]
	}
	w, err := wal.OpenForRead(lg, dir, from)
	if err != nil {
		return l, damaged(err)
	}
	defer w.Close() //nolint:errcheck // it always fails for a log that is only read: there is no directory to close
	metadata, state, entries, err := w.ReadAll()
	if err != nil {
		return l, damaged(err)
	}
	l.snapshot, l.last = from.GetIndex(), from.GetIndex()
	l.blank = state.GetTerm() == 0 && state.GetVote() == 0 && state.GetCommit() == 0
	if n := len(entries); n > 0 {
		l.last = entries[n-1].GetIndex()
	}
	switch {
	case len(metadata) == 0:
		return l, damaged(errors.New("it does not say whose it is"))
	case state.GetCommit() > l.last:
		return l, damaged(fmt.Errorf("it ends at entry %d, and %d was committed", l.last, state.GetCommit()))
	}
	return l, nil
}
