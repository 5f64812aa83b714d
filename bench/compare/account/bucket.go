package account

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Request is a kind of request to an S3 server and what its key begins with, up to and without a slash: "data", "head", "wal"; "" for
// requests that are not about one object.
type Request struct {
	Kind   Kind
	Prefix string
}

// Kind is what a request does, as bills have it.
type Kind string

// Kinds. Multipart uploads are their own, since a part is billed as a PUT but moves part of an object.
const (
	Put       Kind = "PUT"
	Get       Kind = "GET"
	Head      Kind = "HEAD"
	List      Kind = "LIST"
	Delete    Kind = "DELETE"
	Multipart Kind = "MULTIPART"
	Other     Kind = "OTHER"
)

// kinds of versitygw's actions.
var kinds = map[string]Kind{
	"s3_PutObject": Put, "s3_CopyObject": Put, "s3_GetObject": Get, "s3_HeadObject": Head, "s3_HeadBucket": Head,
	"s3_ListObjectsV2": List, "s3_ListObjects": List, "s3_ListMultipartUploads": List, "s3_ListParts": List,
	"s3_DeleteObject": Delete, "s3_DeleteObjects": Delete, "s3_AbortMultipartUpload": Delete,
	"s3_CreateMultipartUpload": Multipart, "s3_UploadPart": Multipart, "s3_CompleteMultipartUpload": Multipart,
}

// Requests is what an S3 server was asked for in some time, by its own access log.
type Requests struct {
	Count  map[Request]int64
	Failed map[Request]int64 // of them, those that were answered with an error: a lost condition, a key that isn't there
	Stored map[string]int64  // bytes of objects put, by prefix
	// Answers to GETs are streamed, and the log has no length of them; Moved is taken from the server's process instead: the bytes that it
	// gave to files and sockets. What it sent is Moved less Stored, but for headers and lists.
	Moved int64
}

// Of counts the requests of some kinds, those of one prefix or ("") all.
func (r Requests) Of(prefix string, kinds ...Kind) int64 {
	n := int64(0)
	for req, count := range r.Count {
		for _, k := range kinds {
			if req.Kind == k && (prefix == "" || prefix == req.Prefix) {
				n += count
			}
		}
	}
	return n
}

// Writes counts all requests that bills have as writes, and Reads those that bring back an object.
func (r Requests) Writes() int64 { return r.Of("", Put, Multipart) }

// Reads counts all requests for an object or a range of one.
func (r Requests) Reads() int64 { return r.Of("", Get) }

// Sent is about how many bytes the server sent.
func (r Requests) Sent() int64 {
	n := r.Moved
	for _, b := range r.Stored {
		n -= b
	}
	return max(0, n)
}

// AccessLog is the log of a versitygw that serves one bucket.
type AccessLog struct {
	Path string
	PID  int
	// Root is what all keys of interest begin with, with its slash: a prefix that the broker was given.
	Root string
}

// LogMark is a moment in an access log.
type LogMark struct{ offset, moved int64 }

// Mark remembers the moment. Requests that are under way belong to what comes after it.
func (l AccessLog) Mark() (m LogMark, err error) {
	info, err := os.Stat(l.Path)
	if err != nil {
		return m, err
	}
	m.offset = info.Size()
	m.moved, err = writtenBy(l.PID)
	return m, err
}

// Since counts what has come since a moment.
func (l AccessLog) Since(m LogMark) (r Requests, err error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(m.offset, io.SeekStart); err != nil {
		return r, err
	}
	if r, err = readLog(f, l.Root); err != nil {
		return r, err
	}
	moved, err := writtenBy(l.PID)
	r.Moved = moved - m.moved
	return r, err
}

// longestLine of an access log: a key has 1,024 bytes at most, and stands three times in its line.
const longestLine = 64 << 10

// readLog counts the lines of a log. A last line without its end is a request that isn't done.
func readLog(from io.Reader, root string) (Requests, error) {
	r := Requests{Count: map[Request]int64{}, Failed: map[Request]int64{}, Stored: map[string]int64{}}
	lines := bufio.NewReaderSize(from, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("access log: %w", err)
		}
		if err := r.add(string(line), root); err != nil {
			return r, err
		}
	}
}

// Fields of a line behind the closing bracket of its time.
const (
	fieldAction = 3
	fieldKey    = 4
	fieldStatus = 6
	fieldSize   = 9
)

func (r *Requests) add(line, root string) error {
	if strings.HasPrefix(line, "log starts ") {
		return nil
	}
	_, rest, ok := strings.Cut(line, "] ")
	f := strings.Fields(rest)
	if !ok || len(f) <= fieldSize {
		return fmt.Errorf("access log: can't make sense of %.200q", line)
	}
	status, err := strconv.Atoi(f[fieldStatus])
	if err != nil {
		return fmt.Errorf("access log: no status in %.200q", line)
	}
	kind, ok := kinds[f[fieldAction]]
	if !ok {
		kind = Other
	}
	req := Request{Kind: kind}
	if key := f[fieldKey]; key != "-" {
		req.Prefix, _, _ = strings.Cut(strings.TrimPrefix(key, root), "/")
	}
	r.Count[req]++
	if status >= 400 {
		r.Failed[req]++
	}
	if size, err := strconv.ParseInt(f[fieldSize], 10, 64); err == nil && kind == Put && status < 300 {
		r.Stored[req.Prefix] += size
	}
	return nil
}

// writtenBy is how many bytes a process gave to write calls of any kind, sockets included.
func writtenBy(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/io", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "wchar: "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no wchar", path)
}
