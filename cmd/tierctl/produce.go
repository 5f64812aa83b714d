package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type produceOptions struct {
	line      lineOptions
	codec     string
	acks      string
	partition int32
	headers   []string
	rate      float64
	maxLine   int
}

func newProduce(g *globals) *cobra.Command {
	var o produceOptions
	cmd := &cobra.Command{
		Use:   "produce TOPIC [FILE...]",
		Short: "Write the lines of files, or of standard input, as records",
		Long: `Writes one record per line; the line without its newline is the value, byte for
byte. Key and timestamp can be taken from the line by regular expressions: the
first group counts, or the whole match of an expression without groups.

Timestamps are read in a Go layout or by a name:
  rfc3339   2015-10-18T18:01:47.978Z       log4j    2015-10-18 18:01:47,978
  iso       2017-05-16 00:00:00.008        apache   18/Oct/2015:18:01:47 +0000
  spark     17/06/09 20:10:40              hdfs     081109 203615
  syslog    Oct 18 18:01:47                rfc1123  Sun, 18 Oct 2015 18:01:47 UTC
  unix, unix-ms, unix-us, unix-ns          numbers since 1970
A line without a timestamp gets that of the line before it, unless
--missing-timestamp says otherwise.`,
		Example: `  tierctl produce logs < app.log
  tierctl produce zookeeper Zookeeper.log --timestamp-pattern '^(\S+ \S+)' --timestamp-format log4j --key-pattern 'myid=(\d+)'
  tierctl produce hdfs HDFS.log --timestamp-pattern '^\d{6} \d{6}' --timestamp-format hdfs --key-pattern 'blk_-?\d+'
  tierctl produce bgl BGL.log --timestamp-pattern '^\S+ (\d+)' --timestamp-format unix --key-pattern '^\S+ \d+ \S+ (\S+)' --codec zstd`,
		Args: args(1, -1, "a topic and, if wanted, files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.produce(cmd, args[0], args[1:], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.line.keyPattern, "key-pattern", "", "regular expression for the key; without a match the key is null")
	f.StringVar(&o.line.timestampPattern, "timestamp-pattern", "", "regular expression for the timestamp")
	f.StringVar(&o.line.timestampFormat, "timestamp-format", "rfc3339", "form of the timestamp: a name from the list above, or a Go layout")
	f.StringVar(&o.line.timezone, "timezone", "UTC", "time zone of timestamps that name none")
	f.StringVar(&o.line.missing, "missing-timestamp", missingPrevious, "a line without a timestamp: previous, now, or fail")
	f.StringVar(&o.codec, "codec", "none", "compression: none, gzip, snappy, lz4 or zstd")
	f.StringVar(&o.acks, "acks", "all", "when a record counts as written: all, 1 or 0")
	f.Int32Var(&o.partition, "partition", -1, "write to this partition, whatever the key")
	f.StringArrayVar(&o.headers, "header", nil, "header KEY=VALUE for every record, may be repeated")
	f.Float64Var(&o.rate, "rate", 0, "records per second (default: as fast as the broker takes them)")
	f.IntVar(&o.maxLine, "max-line-bytes", 1<<20, "longest line in bytes; a longer one is an error")
	return cmd
}

func (o *produceOptions) kgoOpts(topic string) ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[o.codec]
	if !ok {
		return nil, usagef("--codec must be none, gzip, snappy, lz4 or zstd, not %q", o.codec)
	}
	opts := []kgo.Opt{kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchMaxBytes(int32(max(1<<20, o.maxLine+(64<<10))))}
	switch o.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks must be all, 1 or 0, not %q", o.acks)
	}
	if o.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if o.maxLine < 1 || o.maxLine > 100<<20 {
		return nil, usagef("--max-line-bytes must be from 1 to 104857600")
	}
	return opts, nil
}

// produceResult is what was written, for the summary.
type produceResult struct {
	Topic      string                   `json:"topic"`
	Records    int64                    `json:"records"`
	Bytes      int64                    `json:"bytes"`
	Seconds    float64                  `json:"seconds"`
	Keyless    int                      `json:"lines_without_key"`
	Stampless  int                      `json:"lines_without_timestamp"`
	Partitions map[int32]*writtenOffset `json:"partitions"`
}

type writtenOffset struct {
	Partition int32 `json:"partition"`
	First     int64 `json:"first_offset"`
	Last      int64 `json:"last_offset"`
}

func (g *globals) produce(cmd *cobra.Command, topic string, files []string, o produceOptions) error {
	opts, err := o.kgoOpts(topic)
	if err != nil {
		return err
	}
	pairs, err := parsePairs("header", o.headers)
	if err != nil {
		return err
	}
	var headers []kgo.RecordHeader
	for k, v := range pairs {
		headers = append(headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	slices.SortFunc(headers, func(a, b kgo.RecordHeader) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	parser, err := newLineParser(o.line)
	if err != nil {
		return err
	}
	total, err := totalBytes(files)
	if err != nil {
		return err
	}
	client, err := g.reach(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	w := &lineWriter{client: client, parser: parser, o: &o, headers: headers, began: time.Now(), heard: time.Now(),
		bar: newProgress("produce "+topic, total, size), result: produceResult{Topic: topic, Partitions: map[int32]*writtenOffset{}}}
	err = w.run(cmd.Context(), cmd.InOrStdin(), files)
	w.bar.finish()
	w.result.Seconds = time.Since(w.began).Seconds()
	w.result.Keyless, w.result.Stampless = parser.keyless, parser.stampless
	if g.Output != outputTable {
		err = errors.Join(err, g.print(cmd, w.result))
	} else {
		w.summary(cmd)
	}
	if err != nil {
		return fmt.Errorf("produce to %s at %s: %w", topic, g.Bootstrap, err)
	}
	return nil
}

// totalBytes is the size of the files, 0 when it can't be known beforehand.
func totalBytes(files []string) (int64, error) {
	var total int64
	for _, name := range files {
		if name == "-" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return 0, usagef("%w", err)
		}
		if info.IsDir() {
			return 0, usagef("%s is a folder", name)
		}
		total += info.Size()
	}
	if slices.Contains(files, "-") {
		total = 0
	}
	return total, nil
}

// lineWriter sends lines; answers come on other goroutines.
type lineWriter struct {
	client  *kgo.Client
	parser  *lineParser
	o       *produceOptions
	headers []kgo.RecordHeader
	bar     *progress
	began   time.Time
	sent    int64

	mu     sync.Mutex
	result produceResult
	failed error
	heard  time.Time // when the last answer came
}

// silence is how long no answer may come while records wait for one.
const silence = 60 * time.Second

// run writes everything and waits for the answers.
func (w *lineWriter) run(parent context.Context, stdin io.Reader, files []string) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watch(ctx, cancel)
	}()
	err := w.all(ctx, stdin, files)
	if flushErr := w.client.Flush(ctx); err == nil {
		err = flushErr
	}
	cause := context.Cause(ctx)
	cancel(nil)
	<-done
	if cause != nil {
		return cause
	}
	if failure := w.failure(); failure != nil {
		return failure
	}
	return err
}

// watch gives up when the broker has fallen silent. The library itself would try
// for ever, and its own limit counts from a record's timestamp, which may be years
// ago here.
func (w *lineWriter) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		waiting := w.client.BufferedProduceRecords() > 0
		w.mu.Lock()
		if !waiting {
			w.heard = time.Now()
		}
		silent := time.Since(w.heard)
		w.mu.Unlock()
		if silent > silence {
			cancel(fmt.Errorf("no answer for %s; how many of the last records were written is not known", silence))
			return
		}
	}
}

func (w *lineWriter) all(ctx context.Context, stdin io.Reader, files []string) error {
	if len(files) == 0 {
		return w.lines(ctx, "standard input", stdin)
	}
	for _, name := range files {
		if name == "-" {
			if err := w.lines(ctx, "standard input", stdin); err != nil {
				return err
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = w.lines(ctx, name, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (w *lineWriter) lines(ctx context.Context, name string, r io.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, min(64<<10, w.o.maxLine+2)), w.o.maxLine+2)
	scanner.Split(splitLines)
	for n := 1; scanner.Scan(); n++ {
		line := scanner.Bytes()
		if err := w.send(ctx, line); err != nil {
			return fmt.Errorf("%s line %d: %w", name, n, err)
		}
		if err := w.failure(); err != nil {
			return nil // told by the caller
		}
		if err := w.pace(ctx); err != nil {
			return err
		}
		w.bar.add(int64(len(line)) + 1)
	}
	if errors.Is(scanner.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%s has a line over %d bytes (--max-line-bytes)", name, w.o.maxLine)
	}
	return scanner.Err()
}

// splitLines cuts at newlines and keeps everything else, carriage returns too.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func (w *lineWriter) send(ctx context.Context, line []byte) error {
	key, stamp, err := w.parser.take(line)
	if err != nil {
		return err
	}
	w.client.Produce(ctx, &kgo.Record{Key: key, Value: bytes.Clone(line), Timestamp: stamp, Headers: w.headers, Partition: max(0, w.o.partition)}, w.answered)
	w.sent++
	return nil
}

// pace holds back when the lines sent are ahead of the wanted rate.
func (w *lineWriter) pace(ctx context.Context) error {
	if w.o.rate <= 0 {
		return ctx.Err()
	}
	due := w.began.Add(time.Duration(float64(w.sent) / w.o.rate * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *lineWriter) answered(r *kgo.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
	if err != nil {
		if w.failed == nil {
			w.failed = err
		}
		return
	}
	w.result.Records++
	w.result.Bytes += int64(len(r.Key) + len(r.Value))
	p := w.result.Partitions[r.Partition]
	if p == nil {
		p = &writtenOffset{Partition: r.Partition, First: r.Offset, Last: r.Offset}
		w.result.Partitions[r.Partition] = p
	}
	p.First, p.Last = min(p.First, r.Offset), max(p.Last, r.Offset)
}

func (w *lineWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *lineWriter) summary(cmd *cobra.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.result
	cmd.PrintErrf("%s, %s to %s in %.1f s\n", plural(r.Records, "record"), size(r.Bytes), r.Topic, r.Seconds)
	if r.Keyless > 0 {
		cmd.PrintErrf("%d lines had no key\n", r.Keyless)
	}
	if p := w.parser; p.unread > 0 {
		cmd.PrintErrf("%d lines had a timestamp that --timestamp-format %s can't read, the first of them %q\n", p.unread, w.o.line.timestampFormat, p.example)
	}
	if r.Stampless > 0 {
		cmd.PrintErrf("%d lines had no timestamp (--missing-timestamp %s)\n", r.Stampless, w.o.line.missing)
	}
}
