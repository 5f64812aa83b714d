package bucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors to act on. Every error of a Bucket matches exactly one of them with errors.Is (or the context's error), with one
// exception: a put with IfMatch on a missing key matches ErrPrecondition always, and ErrNotFound too where the store tells.
var (
	// ErrNotFound: no object has this key.
	ErrNotFound = errors.New("no such object")
	// ErrPrecondition: the condition of a put did not hold. The caller reads the key back: a retry inside the network may
	// have put the caller's own bytes there.
	ErrPrecondition = errors.New("precondition failed")
	// ErrRange: the object ends before the end of the range asked for.
	ErrRange = errors.New("range lies outside the object")
	// ErrTooLarge: the object is larger than the caller's limit.
	ErrTooLarge = errors.New("object is too large")
	// ErrUnavailable: the store did not answer, or answered that it cannot now. Trying again later makes sense.
	ErrUnavailable = errors.New("bucket is unavailable")
	// ErrDenied: the store refuses these credentials, or the file system these rights.
	ErrDenied = errors.New("access denied")
	// ErrCorrupt: bytes and checksum disagree.
	ErrCorrupt = errors.New("checksum mismatch")
	// ErrConfig: the bucket as configured does not exist, or is elsewhere. Trying again makes no sense.
	ErrConfig = errors.New("bucket is misconfigured")
	// ErrKey: no valid key (see CheckKey), or one that lies below another object's key, or above one.
	ErrKey = errors.New("invalid key")
	// ErrRefused: the store refused the request for a reason of its own, which the text tells.
	ErrRefused = errors.New("request refused")
)

// Error is what buckets return: the verb, the key, the sentinel to act on, and the cause.
type Error struct {
	Verb string
	Key  string
	Kind error // one of the sentinels above
	Err  error // cause; may be nil
}

// NewError returns an *Error. It is there for implementations outside this package.
func NewError(verb, key string, kind, cause error) *Error { return newError(verb, key, kind, cause) }

func newError(verb, key string, kind, cause error) *Error {
	return &Error{Verb: verb, Key: key, Kind: kind, Err: cause}
}

// Error is one sentence: "put head/x: precondition failed: ...".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Verb)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	b.WriteString(": " + e.Kind.Error())
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As see the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// DeleteError tells which keys a Delete could not remove, and why. errors.Is sees every reason.
type DeleteError struct{ Failed map[string]error }

// Error names the first failed key and counts the others.
func (e *DeleteError) Error() string {
	keys := e.keys()
	if len(keys) == 0 {
		return "delete: failed"
	}
	if len(keys) == 1 {
		return e.Failed[keys[0]].Error()
	}
	return fmt.Sprintf("%v (and %d more keys)", e.Failed[keys[0]], len(keys)-1)
}

// Unwrap returns the reasons in the order of their keys.
func (e *DeleteError) Unwrap() []error {
	var errs []error
	for _, k := range e.keys() {
		errs = append(errs, e.Failed[k])
	}
	return errs
}

func (e *DeleteError) keys() []string {
	keys := make([]string, 0, len(e.Failed))
	for k := range e.Failed {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// failures collects what a Delete could not remove.
type failures map[string]error

func (f failures) err() error {
	if len(f) == 0 {
		return nil
	}
	return &DeleteError{Failed: f}
}
