package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lines is how many records kcat and the Java tools write.
const lines = 500

// createTopics creates topics for clients that have no way to.
func createTopics(ctx context.Context, bootstrap string, partitions int32, topics ...string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	admin := kadm.NewClient(c)
	created, err := admin.CreateTopics(ctx, partitions, 1, nil, topics...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		return err
	}
	for { // until they have leaders
		ends, err := admin.ListEndOffsets(ctx, topics...)
		if err == nil {
			err = ends.Error()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// lineKey and lineValue are what line i has.
func lineKey(i int) string { return fmt.Sprintf("key-%06d", i) }
func lineValue(i int) string {
	return fmt.Sprintf("%d:%s", i, strings.Repeat(string(rune('a'+i%26)), i*37%2000))
}

func runKcat(ctx context.Context, s *suite, t task) {
	k := kcat{ctx: ctx, bootstrap: t.bootstrap}
	check := func(what string, f func() error) { s.check(t.client+" "+t.mode+": "+what, f) }
	for _, codec := range codecs[t.mode] {
		topic := t.topic(s, codec)
		check("create topic for "+codec+" (by the suite)", func() error { return createTopics(ctx, t.bootstrap, 3, topic) })
		var from, to int64
		check("produce "+codec, func() (err error) {
			from = time.Now().UnixMilli()
			err = k.produce(topic, "compression.codec="+codec)
			to = time.Now().UnixMilli()
			return err
		})
		check("consume "+codec, func() error { return k.consume(topic, 0, from, to) })
		check("consume "+codec+" from the middle", func() error { return k.consume(topic, 253, from, to) })
		check("look up by time "+codec, func() error {
			return k.lookups(topic, map[int64]int64{-2: 0, -1: lines, 0: 0, from: 0, to + 60_000: lines})
		})
	}
	topic := t.topic(s, "idempotent")
	check("produce idempotently", func() error {
		if err := createTopics(ctx, t.bootstrap, 3, topic); err != nil {
			return err
		}
		from := time.Now().UnixMilli()
		if err := k.produce(topic, "enable.idempotence=true"); err != nil {
			return err
		}
		return k.consume(topic, 0, from, time.Now().UnixMilli())
	})
	for _, topic := range t.read {
		if t.mode == "old" && strings.HasSuffix(topic, "-zstd") {
			continue
		}
		name := strings.TrimPrefix(topic, s.run+"-")
		check("read "+name, func() error { return k.readDataset(topic) })
		check("look up by time "+name, func() error {
			return k.lookups(topic, map[int64]int64{firstTime: 0, firstTime + 1: 1, firstTime + 123_000: 123, firstTime + 122_001: 123})
		})
	}
}

type kcat struct {
	ctx       context.Context
	bootstrap string
}

// produce writes the lines to partition 1, with key and a header.
func (k kcat) produce(topic, property string) error {
	var in strings.Builder
	for i := range lines {
		fmt.Fprintf(&in, "%s|%s\n", lineKey(i), lineValue(i))
	}
	_, err := output(k.ctx, in.String(), "kcat", "-P", "-b", k.bootstrap, "-t", topic, "-p", "1", "-K", "|",
		"-H", "origin=kcat", "-X", property, "-X", "batch.num.messages=90", "-X", "queue.buffering.max.ms=20")
	return err
}

// format has the lengths first, so that nothing in key or value can be taken for something else.
const kcatFormat = `%o %T %K %S %k|%s|%h` + "\n"

func (k kcat) read(topic, from string) (string, error) {
	return output(k.ctx, "", "kcat", "-C", "-b", k.bootstrap, "-t", topic, "-p", "1", "-o", from, "-e", "-q", "-f", kcatFormat, "-X", "check.crcs=true")
}

func (k kcat) consume(topic string, offset int, from, to int64) error {
	out, err := k.read(topic, strconv.Itoa(offset))
	if err != nil {
		return err
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(got) != lines-offset {
		return fmt.Errorf("%d records, want %d", len(got), lines-offset)
	}
	for j, line := range got {
		i := offset + j
		f := strings.SplitN(line, " ", 3)
		if len(f) != 3 || f[0] != strconv.Itoa(i) {
			return fmt.Errorf("record %d: offset in %.60q", i, line)
		}
		if ts, err := strconv.ParseInt(f[1], 10, 64); err != nil || ts < from || ts > to {
			return fmt.Errorf("record %d: timestamp %s, not within %d to %d", i, f[1], from, to)
		}
		want := fmt.Sprintf("%d %d %s|%s|origin=kcat", len(lineKey(i)), len(lineValue(i)), lineKey(i), lineValue(i))
		if f[2] != want {
			return fmt.Errorf("record %d: %.80q, want %.80q", i, f[2], want)
		}
	}
	return nil
}

// firstTime is the first timestamp of the common data set, see go/dataset.go.
const firstTime = 1_600_000_000_000

// readDataset checks offsets, timestamps, keys and values of what another client wrote; kcat
// can't print binary headers unambiguously, so of these only the text is looked for.
func (k kcat) readDataset(topic string) error {
	out, err := k.read(topic, "beginning")
	if err != nil {
		return err
	}
	for i := range lines {
		key, value, keyLen, valueLen := lineKey(i), lineValue(i), len(lineKey(i)), len(lineValue(i))
		switch i % 7 {
		case 3:
			key, keyLen = "", -1
		case 5:
			key, keyLen = "", 0
		}
		if i%50 == 49 {
			value, valueLen = "", -1
		}
		want := fmt.Sprintf("%d %d %d %d %s|%s|", i, firstTime+i*1000, keyLen, valueLen, key, value)
		if i%3 == 0 {
			want += fmt.Sprintf("name=header %d,bytes=", i)
		}
		at := strings.Index(out, want)
		if at < 0 {
			return fmt.Errorf("record %d is not what it should be: %.80q does not have %.80q", i, out, want)
		}
		out = out[at+len(want):]
	}
	return nil
}

var kcatOffset = regexp.MustCompile(`offset (-?\d+)`)

// lookups asks for the first offset at or after each time (-2 earliest, -1 latest).
func (k kcat) lookups(topic string, want map[int64]int64) error {
	for ts, offset := range want {
		out, err := output(k.ctx, "", "kcat", "-Q", "-b", k.bootstrap, "-t", fmt.Sprintf("%s:1:%d", topic, ts))
		if err != nil {
			return err
		}
		m := kcatOffset.FindStringSubmatch(out)
		if m == nil {
			return errors.New("no offset in " + strconv.Quote(out))
		}
		got := m[1]
		if got == "-1" && ts > firstTime {
			got = strconv.Itoa(lines) // nothing at or after it
		}
		if got != strconv.FormatInt(offset, 10) {
			return fmt.Errorf("time %d: offset %s, want %d", ts, got, offset)
		}
	}
	return nil
}
