package segment

import (
	"errors"
	"io/fs"
	"math/rand"
	"path/filepath"
	"strings"
	"sync"
)

// ErrCrash is what a crashed FaultFS returns from every call. A plan returns it to
// crash at a call.
var ErrCrash = errors.New("segment: simulated crash")

// Call is one call of a FaultFS, as its plan sees it: N counts from 1, Op is the name
// of the method in lower case.
type Call struct {
	N    int
	Op   string
	Path string
}

// FaultFS is a file layer that fails or crashes at chosen calls and forgets, at a power
// loss, what was not synced. It keeps the old content of each unsynced 4 KiB page and
// undoes names whose directory was not synced.
//
// Its model: pages reach the disk in any order, names in the order of their changes; a
// failed Sync leaves pages clean that never reached the disk, so that only writing them
// again helps; sizes and allocation are durable at once. It never asks inner for a sync,
// which makes tests fast.
type FaultFS struct {
	inner FS

	mu      sync.Mutex
	plan    func(Call) error
	calls   int
	crashed bool
	nodes   map[string]*faultNode
	names   []nameChange
	hidden  int
}

// faultNode is what a power loss would do to one file.
type faultNode struct {
	pages map[int64][]byte // content on disk of pages that were written since
	stuck map[int64]bool   // pages that look clean after a failed Sync
}

type nameChange struct {
	op       string // create, rename, remove
	from, to string
}

const faultPage = 4096

const hiddenSuffix = ".removed"

// NewFaultFS puts faults in front of inner. plan is called for each call, one at a
// time, and returns the error that the call fails with: nil to let it through,
// io.ErrShortWrite for a Writev that writes half, ErrCrash to crash. A nil plan lets
// everything through.
func NewFaultFS(inner FS, plan func(Call) error) *FaultFS {
	return &FaultFS{inner: inner, plan: plan, nodes: make(map[string]*faultNode)}
}

// FailAt returns a plan that fails the k-th call with err.
func FailAt(k int, err error) func(Call) error {
	return func(c Call) error {
		if c.N == k {
			return err
		}
		return nil
	}
}

// SetPlan replaces the plan and counts calls from 1 again.
func (f *FaultFS) SetPlan(plan func(Call) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.calls = plan, 0
}

// Calls is how many calls there were since the last SetPlan or Restart.
func (f *FaultFS) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Crashed says whether the crash has happened.
func (f *FaultFS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Restart ends a crash: calls work again under plan. Files of the time before must
// be closed. With rnd, the machine lost its power: of the unsynced pages a random half
// is lost, and of the unsynced names a random number of the latest changes. Without,
// only the process died, and nothing is lost.
func (f *FaultFS) Restart(rnd *rand.Rand, plan func(Call) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed, f.plan, f.calls = false, plan, 0
	if rnd == nil {
		return nil
	}
	if err := f.loseNames(rnd); err != nil {
		return err
	}
	for path, n := range f.nodes {
		if err := f.losePages(path, n, rnd); err != nil {
			return err
		}
	}
	f.nodes = make(map[string]*faultNode)
	return nil
}

func (f *FaultFS) loseNames(rnd *rand.Rand) error {
	keep := rnd.Intn(len(f.names) + 1)
	for i := len(f.names) - 1; i >= 0; i-- {
		c := f.names[i]
		var err error
		switch {
		case i < keep && c.op == "remove":
			err = f.inner.Remove(c.to)
		case i < keep:
		case c.op == "create":
			err = f.inner.Remove(c.to)
			delete(f.nodes, c.to)
		default:
			err = f.inner.Rename(c.to, c.from)
			f.move(c.to, c.from)
		}
		if err != nil {
			return err
		}
	}
	f.names = nil
	return nil
}

func (f *FaultFS) losePages(path string, n *faultNode, rnd *rand.Rand) error {
	if len(n.pages) == 0 {
		return nil
	}
	file, err := f.inner.Open(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for page, old := range n.pages {
		if !n.stuck[page] && rnd.Intn(2) == 0 {
			continue
		}
		if _, err := file.Writev([][]byte{old}, page*faultPage); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// enter counts a call and asks the plan.
func (f *FaultFS) enter(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return ErrCrash
	}
	f.calls++
	if f.plan == nil {
		return nil
	}
	err := f.plan(Call{N: f.calls, Op: op, Path: path})
	if errors.Is(err, ErrCrash) {
		f.crashed = true
	}
	return err
}

func (f *FaultFS) node(path string) *faultNode {
	n := f.nodes[path]
	if n == nil {
		n = &faultNode{pages: make(map[int64][]byte), stuck: make(map[int64]bool)}
		f.nodes[path] = n
	}
	return n
}

func (f *FaultFS) move(from, to string) {
	if n, ok := f.nodes[from]; ok {
		f.nodes[to] = n
		delete(f.nodes, from)
	}
}

// MkdirAll implements FS; directories are durable at once.
func (f *FaultFS) MkdirAll(dir string) error {
	if err := f.enter("mkdirall", dir); err != nil {
		return err
	}
	return f.inner.MkdirAll(dir)
}

// Open implements FS.
func (f *FaultFS) Open(path string, create bool) (File, error) {
	if err := f.enter("open", path); err != nil {
		return nil, err
	}
	file, err := f.inner.Open(path, false)
	if err != nil && create && errors.Is(err, fs.ErrNotExist) {
		if file, err = f.inner.Open(path, true); err == nil {
			f.mu.Lock()
			f.names = append(f.names, nameChange{op: "create", to: path})
			f.mu.Unlock()
		}
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &faultFile{fs: f, inner: file, path: path, node: f.node(path)}, nil
}

// Rename implements FS.
func (f *FaultFS) Rename(from, to string) error {
	if err := f.enter("rename", to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inner.Rename(from, to); err != nil {
		return err
	}
	f.move(from, to)
	f.names = append(f.names, nameChange{op: "rename", from: from, to: to})
	return nil
}

// Remove implements FS. The file is only hidden until its directory is synced.
func (f *FaultFS) Remove(path string) error {
	if err := f.enter("remove", path); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hidden++
	to := path + strings.Repeat("~", f.hidden) + hiddenSuffix
	if err := f.inner.Rename(path, to); err != nil {
		return err
	}
	f.move(path, to)
	f.names = append(f.names, nameChange{op: "remove", from: path, to: to})
	return nil
}

// SyncDir implements FS.
func (f *FaultFS) SyncDir(dir string) error {
	if err := f.enter("syncdir", dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.names[:0]
	for _, c := range f.names {
		if filepath.Dir(c.to) != filepath.Clean(dir) {
			rest = append(rest, c)
			continue
		}
		if c.op == "remove" {
			delete(f.nodes, c.to)
			if err := f.inner.Remove(c.to); err != nil {
				return err
			}
		}
	}
	f.names = rest
	return nil
}

// List implements FS.
func (f *FaultFS) List(dir string) ([]FileStat, error) {
	if err := f.enter("list", dir); err != nil {
		return nil, err
	}
	all, err := f.inner.List(dir)
	out := all[:0]
	for _, st := range all {
		if !strings.HasSuffix(st.Name, hiddenSuffix) {
			out = append(out, st)
		}
	}
	return out, err
}

// Free implements FS.
func (f *FaultFS) Free(dir string) (int64, error) {
	if err := f.enter("free", dir); err != nil {
		return 0, err
	}
	return f.inner.Free(dir)
}

var _ FS = (*FaultFS)(nil)
