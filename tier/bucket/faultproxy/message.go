package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxHeader bounds what is read before the end of a header must have come.
const maxHeader = 64 << 10

// message is the header of a request or answer, as it came.
type message struct {
	raw     []byte // up to and with the empty line
	first   string // request line or status line
	length  int64  // of the body; -1: until the connection ends
	chunked bool
	expect  bool // Expect: 100-continue
}

// readMessage reads a header. It returns io.EOF if the connection ended before its first byte.
func readMessage(r *bufio.Reader) (*message, error) {
	m := &message{length: -1}
	for {
		line, err := r.ReadSlice('\n')
		m.raw = append(m.raw, line...)
		if err != nil {
			if err == io.EOF && len(m.raw) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if len(m.raw) > maxHeader {
			return nil, fmt.Errorf("a header of more than %d bytes", maxHeader)
		}
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case m.first == "" && text != "":
			m.first = text
		case text == "":
			return m, nil
		default:
			m.field(text)
		}
	}
}

func (m *message) field(text string) {
	name, value, _ := strings.Cut(text, ":")
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "content-length":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
			m.length = n
		}
	case "transfer-encoding":
		m.chunked = strings.EqualFold(value, "chunked")
	case "expect":
		m.expect = strings.EqualFold(value, "100-continue")
	}
}

// method is that of a request.
func (m *message) method() string {
	method, _, _ := strings.Cut(m.first, " ")
	return method
}

// status is that of an answer.
func (m *message) status() int {
	f := strings.Fields(m.first)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return n
}

// requestBody is the length of a request's body: without a length there is none.
func (m *message) requestBody() int64 { return max(m.length, 0) }

// hasNoBody tells whether the answer to a request with this method never has a body.
func (m *message) hasNoBody(method string) bool {
	s := m.status()
	return method == "HEAD" || s < 200 || s == 204 || s == 304
}

// copyBody passes the body of m through edit. It returns whether the connection can carry more messages.
func copyBody(w io.Writer, r *bufio.Reader, m *message, length int64, edit editor) (bool, error) {
	switch {
	case m.chunked:
		return true, copyChunks(w, r, edit)
	case length >= 0:
		return true, edit.copy(w, io.LimitReader(r, length), length)
	}
	return false, edit.copy(w, r, -1)
}

// copyChunks passes a chunked body. Only the data of the chunks is edited.
func copyChunks(w io.Writer, r *bufio.Reader, edit editor) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		head, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(";"))
		n, err := strconv.ParseInt(string(head), 16, 63)
		if err != nil {
			return fmt.Errorf("a chunk of size %q", head)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if n == 0 {
			return copyTrailer(w, r)
		}
		if err := edit.copy(w, io.LimitReader(r, n), n); err != nil {
			return err
		}
		if _, err := io.CopyN(w, r, 2); err != nil {
			return err
		}
	}
}

func copyTrailer(w io.Writer, r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}
