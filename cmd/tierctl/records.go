package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"text/template"
	"unicode/utf8"
)

// record is a record as the formats see it, wherever it was read.
type record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64 // ms since 1970
	Key       []byte
	Value     []byte
	Headers   []recordHeader
}

type recordHeader struct {
	Key   string
	Value []byte
}

// recordWriter prints records in one format.
type recordWriter struct {
	w     *bufio.Writer
	print func(*record) error
}

const formatHelp = "form of records: lines (values, a newline after each), json (one object a line), raw (values with nothing between), or a Go template such as '{{.Offset}} {{.Key}} {{.Value}}\\n' (fields Topic, Partition, Offset, Timestamp, Time, Key, Value, Headers)"

// newRecordWriter takes lines, json, raw, or a Go template.
func newRecordWriter(out io.Writer, format string) (*recordWriter, error) {
	w := &recordWriter{w: bufio.NewWriterSize(out, 64<<10)}
	switch {
	case format == "lines":
		w.print = func(r *record) error {
			if _, err := w.w.Write(r.Value); err != nil {
				return err
			}
			return w.w.WriteByte('\n')
		}
	case format == "raw":
		w.print = func(r *record) error {
			_, err := w.w.Write(r.Value)
			return err
		}
	case format == "json":
		e := json.NewEncoder(w.w)
		e.SetEscapeHTML(false)
		w.print = func(r *record) error { return e.Encode(jsonRecord(r)) }
	case strings.Contains(format, "{{"):
		text := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\0`, "\x00", `\\`, `\`).Replace(format)
		t, err := template.New("format").Parse(text)
		if err != nil {
			return nil, usagef("--format: %w", err)
		}
		w.print = func(r *record) error { return t.Execute(w.w, templateRecord(r)) }
		if err := t.Execute(io.Discard, templateRecord(&record{})); err != nil {
			return nil, usagef("--format: %w", err)
		}
	default:
		return nil, usagef("--format must be lines, json, raw or a Go template, not %q", format)
	}
	return w, nil
}

func (w *recordWriter) flush() error { return w.w.Flush() }

// recordJSON has text where bytes are UTF-8, and base64 where they are not.
type recordJSON struct {
	Topic       string       `json:"topic"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	Timestamp   int64        `json:"timestamp"`
	Key         *string      `json:"key"`
	KeyBase64   []byte       `json:"key_base64,omitempty"`
	Value       *string      `json:"value"`
	ValueBase64 []byte       `json:"value_base64,omitempty"`
	Headers     []headerJSON `json:"headers,omitempty"`
}

type headerJSON struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

func jsonRecord(r *record) recordJSON {
	j := recordJSON{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp}
	j.Key, j.KeyBase64 = textOrBytes(r.Key)
	j.Value, j.ValueBase64 = textOrBytes(r.Value)
	for _, h := range r.Headers {
		x := headerJSON{Key: h.Key}
		x.Value, x.ValueBase64 = textOrBytes(h.Value)
		j.Headers = append(j.Headers, x)
	}
	return j
}

func textOrBytes(b []byte) (*string, []byte) {
	switch {
	case b == nil:
		return nil, nil
	case !utf8.Valid(b):
		return nil, b
	}
	s := string(b)
	return &s, nil
}

type recordText struct {
	Topic      string
	Partition  int32
	Offset     int64
	Timestamp  int64
	Time       string
	Key, Value string
	Headers    map[string]string
}

func templateRecord(r *record) recordText {
	t := recordText{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Time: moment(r.Timestamp),
		Key: string(r.Key), Value: string(r.Value), Headers: map[string]string{}}
	for _, h := range r.Headers {
		t.Headers[h.Key] = string(h.Value)
	}
	return t
}
