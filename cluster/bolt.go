package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The database file of etcd is one of bbolt: pages that begin with id, flags, count and overflow; branches and leaves of
// B+ trees; two meta pages. bbolt maps the file and panics, sometimes in goroutines of its own, at what makes no sense.
// boltCheck reads every page that can be reached, and believes nothing.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltHeader   = 16 // of a page, and the length of an element
	boltMetaLen  = 64 // without header
	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltBucket   = 0x01 // flag of a leaf element
	boltMaxPage  = 64 << 10
	boltMaxDepth = 64
	boltMaxLen   = 64 << 20 // of one page with what overflows: a value of etcd's is far below it
)

// boltState is what checkFiles wants to know of the content.
type boltState struct {
	applied uint64 // index of the last entry of the log that is in the database
	keys    int    // versions of keys
}

type boltCheck struct {
	f       io.ReaderAt
	size    int64
	page    int64
	high    uint64 // pages from here on were never used
	seen    map[uint64]bool
	buckets [][]byte // names on the way down
	state   boltState
}

// checkBolt reads the whole database. Damage is a *DamageError.
func checkBolt(path string) (boltState, error) {
	f, err := os.Open(path)
	if err != nil {
		return boltState{}, fmt.Errorf("start etcd: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return boltState{}, fmt.Errorf("start etcd: %w", err)
	}
	c := &boltCheck{f: f, size: info.Size(), seen: map[uint64]bool{}}
	if err := c.run(); err != nil {
		return boltState{}, &DamageError{path, err.Error()}
	}
	return c.state, nil
}

// boltTorn tells a database whose very first write, four pages at once, a kill has cut between two of them. In every one that
// was used transaction 2 has overwritten the first meta page.
func boltTorn(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, boltHeader+boltMetaLen)
	info, err := f.Stat()
	if _, rerr := f.ReadAt(b, 0); err != nil || rerr != nil {
		return false
	}
	m, le := b[boltHeader:], binary.LittleEndian
	return le.Uint32(m) == boltMagic && le.Uint64(m[48:]) == 0 && info.Size() < 4*int64(le.Uint32(m[8:]))
}

func (c *boltCheck) run() error {
	root, err := c.meta()
	if err != nil {
		return err
	}
	return c.tree(root, 0)
}

// meta finds the newest valid one of the two meta pages.
func (c *boltCheck) meta() (root uint64, err error) {
	var newest uint64
	found := false
	take := func(at int64) {
		b := make([]byte, boltHeader+boltMetaLen)
		if _, err := c.f.ReadAt(b, at); err != nil {
			return
		}
		m, le := b[boltHeader:], binary.LittleEndian
		sum := fnv.New64a()
		sum.Write(m[:56])
		page := int64(le.Uint32(m[8:]))
		if le.Uint32(m) != boltMagic || le.Uint32(m[4:]) != boltVersion || le.Uint64(m[56:]) != sum.Sum64() ||
			page < 512 || page > boltMaxPage || at != 0 && at != page {
			return
		}
		if txid := le.Uint64(m[48:]); !found || txid > newest {
			found, newest, c.page, root, c.high = true, txid, page, le.Uint64(m[16:]), le.Uint64(m[40:])
		}
	}
	take(0)
	for at := int64(512); at <= boltMaxPage; at *= 2 {
		take(at)
	}
	switch {
	case !found:
		return 0, errors.New("it is no database, or both of its meta pages are damaged")
	case c.high > uint64(c.size/c.page):
		return 0, fmt.Errorf("the file is cut short: %d bytes are there, of %d pages of %d", c.size, c.high, c.page)
	}
	return root, nil
}

// read returns a page with what overflows from it.
func (c *boltCheck) read(id uint64) (b []byte, flags, count int, err error) {
	bad := func(why string) ([]byte, int, int, error) {
		return nil, 0, 0, fmt.Errorf("page %d is damaged: %s", id, why)
	}
	if id < 2 || id >= c.high {
		return bad("no such page")
	}
	head := make([]byte, boltHeader)
	if _, err := c.f.ReadAt(head, int64(id)*c.page); err != nil {
		return bad("it can't be read: " + err.Error())
	}
	le := binary.LittleEndian
	if got := le.Uint64(head); got != id {
		return bad(fmt.Sprintf("it calls itself %d", got))
	}
	more := uint64(le.Uint32(head[12:]))
	if more >= c.high-id || int64(more+1)*c.page > boltMaxLen {
		return bad(fmt.Sprintf("it goes on for %d pages", more))
	}
	for i := id; i <= id+more; i++ {
		if c.seen[i] {
			return bad("it is used twice")
		}
		c.seen[i] = true
	}
	b = make([]byte, int64(more+1)*c.page)
	if _, err := c.f.ReadAt(b, int64(id)*c.page); err != nil {
		return bad("it can't be read: " + err.Error())
	}
	return b, int(le.Uint16(head[8:])), int(le.Uint16(head[10:])), nil
}

func (c *boltCheck) tree(id uint64, depth int) error {
	if depth > boltMaxDepth {
		return fmt.Errorf("page %d is damaged: the tree is too deep", id)
	}
	b, flags, count, err := c.read(id)
	if err != nil {
		return err
	}
	if err := c.elements(b, flags, count, depth); err != nil {
		return fmt.Errorf("page %d is damaged: %w", id, err)
	}
	return nil
}

var errElement = errors.New("an element does not lie in it")

// elements checks those of a branch or leaf, and what is below them.
func (c *boltCheck) elements(b []byte, flags, count, depth int) error {
	if flags != boltBranch && flags != boltLeaf {
		return fmt.Errorf("it has type %#x", flags)
	}
	if boltHeader*(count+1) > len(b) || flags == boltBranch && count == 0 {
		return fmt.Errorf("it has %d elements", count)
	}
	var before []byte
	le := binary.LittleEndian
	for i := range count {
		at := boltHeader * (i + 1)
		e := b[at : at+boltHeader]
		pos, key, value := uint64(le.Uint32(e)), uint64(le.Uint32(e[4:])), uint64(0)
		if flags == boltLeaf {
			pos, key, value = uint64(le.Uint32(e[4:])), uint64(le.Uint32(e[8:])), uint64(le.Uint32(e[12:]))
		}
		from := uint64(at) + pos
		if from+key+value > uint64(len(b)) {
			return errElement
		}
		k := b[from : from+key]
		if i > 0 && bytes.Compare(before, k) >= 0 {
			return errors.New("its keys are not in order")
		}
		before = k
		var err error
		switch {
		case flags == boltBranch:
			err = c.tree(le.Uint64(e[8:]), depth+1)
		case le.Uint32(e)&boltBucket != 0:
			err = c.bucket(k, b[from+key:from+key+value], depth)
		default:
			err = c.pair(k, b[from+key:from+key+value])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a tree in a tree, which lies on pages of its own, or behind its header when it is small.
func (c *boltCheck) bucket(name, v []byte, depth int) error {
	if len(v) < boltHeader || depth > boltMaxDepth {
		return errElement
	}
	c.buckets = append(c.buckets, name)
	defer func() { c.buckets = c.buckets[:len(c.buckets)-1] }()
	le := binary.LittleEndian
	if root := le.Uint64(v); root != 0 {
		return c.tree(root, depth+1)
	}
	inline := v[boltHeader:]
	if len(inline) < boltHeader {
		return errElement
	}
	return c.elements(inline, int(le.Uint16(inline[8:])), int(le.Uint16(inline[10:])), depth+1)
}

// revisionLen is the length of a key of etcd's bucket of versions; a deletion has a mark behind it.
const revisionLen = 17

func (c *boltCheck) pair(k, v []byte) error {
	if len(c.buckets) != 1 {
		return nil
	}
	switch string(c.buckets[0]) {
	case "key":
		if len(k) != revisionLen && len(k) != revisionLen+1 || k[8] != '_' {
			return fmt.Errorf("key %x is no revision", k[:min(len(k), 32)])
		}
		c.state.keys++
	case "meta":
		if string(k) == "consistent_index" && len(v) == 8 {
			c.state.applied = binary.BigEndian.Uint64(v)
		}
	}
	return nil
}
