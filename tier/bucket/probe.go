package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ProbePrefix is where Probe puts its objects: keys below it belong to nobody else, and a crash may leave some.
const ProbePrefix = "probe/"

// Properties that Probe checks, as ProbeError names them.
const (
	PropertyCreateOnce     = "a second create (If-None-Match: *) of a key is refused"
	PropertyReplaceRight   = "a replace with the right ETag (If-Match) is accepted"
	PropertyReplaceWrong   = "a replace with a wrong ETag (If-Match) is refused"
	PropertyReplaceMissing = "a replace (If-Match) of a missing key is refused"
	PropertyOneWinner      = "of racing conditional puts exactly one wins"
	PropertyReadAfterWrite = "a read sees what was written before"
	PropertyListAfterWrite = "a list sees what was written before"
	PropertyRange          = "a ranged read returns the range"
	PropertyDelete         = "a deleted key is gone"
)

// ErrProbe is matched by every *ProbeError.
var ErrProbe = errors.New("the bucket lacks a property that tierbroker needs")

// ProbeError names the property that a store lacks.
type ProbeError struct {
	Property string // one of the Property constants
	Detail   string // what was seen instead
}

// Error is one sentence.
func (e *ProbeError) Error() string {
	return fmt.Sprintf("%v: it must hold that %s, but %s", ErrProbe, e.Property, e.Detail)
}

// Is matches ErrProbe.
func (e *ProbeError) Is(target error) bool { return target == ErrProbe }

const (
	probeRacers  = 8
	probeTries   = 5
	probeCleanup = 10 * time.Second
)

// probe is one run.
type probe struct {
	ctx  context.Context
	b    Bucket
	base string
	keys []string
}

var probeOp = Op{Class: ClassTool, Kind: KindCluster}

// Probe checks that b keeps the promises on which correctness rests: conditional puts, one winner of a race, reads and lists
// that see what was written. It returns a *ProbeError if b lacks one, another error if b could not be asked, and removes its
// objects in any case. It takes about 30 small requests.
func Probe(ctx context.Context, b Bucket) error {
	p := &probe{ctx: ctx, b: b, base: ProbePrefix + rand.Text() + "/"}
	err := p.run()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	if derr := b.Delete(cleanup, probeOp, p.keys); derr != nil && err == nil {
		err = derr
	}
	return err
}

func (p *probe) run() error {
	for _, step := range []func() error{p.create, p.replace, p.replaceMissing, p.raceCreate, p.raceReplace, p.list, p.deletes} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) key(name string) string {
	k := p.base + name
	p.keys = append(p.keys, k)
	return k
}

func (p *probe) put(key, content string, cond Condition) (Info, error) {
	return p.b.Put(p.ctx, probeOp, key, BytesBody([]byte(content)), cond)
}

// refused puts what must be refused. The answer may be lost, because a server may break the connection on which the body still
// comes after it has refused; then it is asked again.
func (p *probe) refused(property, key, content string, cond Condition) error {
	var err error
	for range probeTries {
		if _, err = p.put(key, content, cond); !errors.Is(err, ErrUnavailable) {
			break
		}
	}
	switch {
	case err == nil:
		return &ProbeError{Property: property, Detail: "it was accepted"}
	case errors.Is(err, ErrPrecondition):
		return nil
	}
	return err
}

// expect reads key back.
func (p *probe) expect(key, want, property string) (Info, error) {
	got, info, err := GetAll(p.ctx, p.b, probeOp, key, 4096)
	if errors.Is(err, ErrNotFound) {
		return Info{}, &ProbeError{Property: property, Detail: "the key is missing"}
	}
	if err == nil && string(got) != want {
		err = &ProbeError{Property: property, Detail: fmt.Sprintf("%q was read instead of %q", got, want)}
	}
	return info, err
}

func (p *probe) create() error {
	key := p.key("create")
	if _, err := p.put(key, "one", Condition{IfNoneMatch: true}); err != nil {
		return err
	}
	if err := p.refused(PropertyCreateOnce, key, "two", Condition{IfNoneMatch: true}); err != nil {
		return err
	}
	if _, err := p.expect(key, "one", PropertyReadAfterWrite); err != nil {
		return err
	}
	dst := make([]byte, 2)
	if _, _, err := p.b.Get(p.ctx, probeOp, key, 1, 2, dst); err != nil {
		return err
	}
	if !bytes.Equal(dst, []byte("ne")) {
		return &ProbeError{Property: PropertyRange, Detail: fmt.Sprintf("%q was read instead of \"ne\"", dst)}
	}
	return nil
}

func (p *probe) replace() error {
	key := p.key("replace")
	first, err := p.put(key, "one", Condition{})
	if err != nil {
		return err
	}
	_, err = p.put(key, "two", Condition{IfMatch: first.ETag})
	if errors.Is(err, ErrPrecondition) {
		return &ProbeError{Property: PropertyReplaceRight, Detail: "it was refused"}
	}
	if err != nil {
		return err
	}
	if err := p.refused(PropertyReplaceWrong, key, "three", Condition{IfMatch: first.ETag}); err != nil {
		return err
	}
	info, err := p.expect(key, "two", PropertyReadAfterWrite)
	if err != nil {
		return err
	}
	// The ETag that a read returns must serve as well as the one of the put.
	if _, err = p.put(key, "four", Condition{IfMatch: info.ETag}); errors.Is(err, ErrPrecondition) {
		return &ProbeError{Property: PropertyReplaceRight, Detail: "the ETag of a read was refused"}
	}
	return err
}

func (p *probe) replaceMissing() error {
	key := p.key("missing")
	if err := p.refused(PropertyReplaceMissing, key, "one", Condition{IfMatch: "0123456789abcdef0123456789abcdef"}); err != nil {
		return err
	}
	if _, err := p.b.Stat(p.ctx, probeOp, key); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = &ProbeError{Property: PropertyReplaceMissing, Detail: "the key exists now"}
		}
		return err
	}
	return nil
}

func (p *probe) raceCreate() error {
	return p.race(p.key("race-create"), Condition{IfNoneMatch: true})
}

func (p *probe) raceReplace() error {
	key := p.key("race-replace")
	info, err := p.put(key, "start", Condition{})
	if err != nil {
		return err
	}
	return p.race(key, Condition{IfMatch: info.ETag})
}

// race lets writers compete. A writer whose put ended with an unknown outcome may have won; then nobody may have been told so.
func (p *probe) race(key string, cond Condition) error {
	errs := make([]error, probeRacers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = p.put(key, fmt.Sprintf("writer %d", i), cond) })
	}
	wg.Wait()
	winner, winners := -1, 0
	for i, err := range errs {
		switch {
		case err == nil:
			winner = i
			winners++
		case !errors.Is(err, ErrPrecondition) && !errors.Is(err, ErrUnavailable):
			return err
		}
	}
	if p.ctx.Err() != nil {
		return newError("probe", key, ErrUnavailable, p.ctx.Err())
	}
	if winners > 1 {
		return &ProbeError{Property: PropertyOneWinner, Detail: fmt.Sprintf("%d of %d won", winners, probeRacers)}
	}
	got, _, err := GetAll(p.ctx, p.b, probeOp, key, 4096)
	switch {
	case errors.Is(err, ErrNotFound):
		return &ProbeError{Property: PropertyOneWinner, Detail: "nobody won"}
	case err != nil:
		return err
	case winner >= 0 && string(got) != fmt.Sprintf("writer %d", winner):
		return &ProbeError{Property: PropertyOneWinner, Detail: fmt.Sprintf("writer %d was told that it won, but %q is there", winner, got)}
	case winner < 0 && string(got) == "start":
		return &ProbeError{Property: PropertyOneWinner, Detail: "nobody won"}
	}
	return nil
}

func (p *probe) list() error {
	page, err := p.b.List(p.ctx, probeOp, p.base, "", 0)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, item := range page.Items {
		seen[item.Key] = true
	}
	for _, name := range []string{"create", "replace", "race-create", "race-replace"} {
		if !seen[p.base+name] {
			return &ProbeError{Property: PropertyListAfterWrite, Detail: "the key " + name + " is missing in it"}
		}
	}
	return nil
}

func (p *probe) deletes() error {
	if err := p.b.Delete(p.ctx, probeOp, p.keys); err != nil {
		return err
	}
	_, err := p.b.Stat(p.ctx, probeOp, p.base+"create")
	if err == nil {
		return &ProbeError{Property: PropertyDelete, Detail: "it is still there"}
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}
