package faultproxy

import (
	"errors"
	"io"
	"strings"
	"time"
)

// Kind says what a Mode does.
type Kind int

// Kinds of modes.
const (
	Pass     Kind = iota // nothing
	SlowDown             // every request is answered with 503 SlowDown
	Hang                 // requests are read and not answered until the mode changes
	Cut                  // bodies of answers break off in the middle, with the connection
	Flip                 // one bit in the body of each answer to GET is wrong
	FlipPut              // one bit in the body of each PUT is wrong when it arrives
	Lose                 // the server gets the request; its answer is lost with the connection
	Refuse               // connections are closed as they come, open ones too
)

// Mode is what the proxy does to requests that match.
type Mode struct {
	Kind    Kind
	Latency time.Duration                  // before each request goes on, in every kind
	Match   func(method, path string) bool // nil: all requests
	Every   int                            // only each n-th matching request; 0 and 1: all
}

func (m *Mode) matches(req *message) bool {
	if m.Match == nil {
		return true
	}
	f := strings.Fields(req.first)
	return len(f) >= 2 && m.Match(f[0], f[1])
}

// slowDown is what S3 says.
const slowDownBody = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

var errCut = errors.New("cut by plan")

// editor spoils a body on its way. The zero value passes it.
type editor struct{ kind Kind }

// copy passes r, of which length bytes are expected (-1: unknown).
func (e editor) copy(w io.Writer, r io.Reader, length int64) error {
	switch e.kind {
	case Cut:
		if length != 0 {
			_, err := io.CopyN(w, r, max(length/2, 0))
			return errors.Join(errCut, err)
		}
	case Flip, FlipPut:
		// The bit in the middle, or in the first byte when there is no middle to know.
		at := max(length/2, 0)
		if _, err := io.CopyN(w, r, at); err != nil {
			return err
		}
		var b [1]byte
		n, err := r.Read(b[:])
		if n > 0 {
			b[0] ^= 0x10
			if _, err := w.Write(b[:]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := io.Copy(w, r)
	return err
}
