package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Separators for Kafka's console tools, unlike anything in the data.
const (
	fieldEnd  = "<|>"
	recordEnd = "<#>\n"
	headerEnd = "<,>"
	isNull    = "<null>"
)

type java struct {
	ctx       context.Context
	classpath string
	bootstrap string
}

func runJava(ctx context.Context, s *suite, t task) {
	j := java{ctx: ctx, classpath: s.path("java", "target", "dependency", "*"), bootstrap: t.bootstrap}
	check := func(what string, f func() error) { s.check(t.client+" "+t.mode+": "+what, f) }
	for _, codec := range codecs[t.mode] {
		topic := t.topic(s, codec)
		check("create topic for "+codec, func() error { return j.create(topic, 1) })
		var from, to int64
		check("console producer "+codec, func() (err error) {
			from = time.Now().UnixMilli()
			err = j.produce(topic, codec)
			to = time.Now().UnixMilli()
			return err
		})
		check("console consumer "+codec, func() error { return j.consume(topic, 0, from, to) })
	}
	topic := t.topic(s, "none")
	check("console consumer from the middle", func() error { return j.consume(topic, 253, 0, time.Now().UnixMilli()) })
	check("get-offsets", func() error { return j.lookups(t, s) })
	for _, topic := range t.read {
		if t.mode == "old" && strings.HasSuffix(topic, "-zstd") {
			continue
		}
		check("console consumer reads "+strings.TrimPrefix(topic, s.run+"-"), func() error { return j.readDataset(topic) })
	}
	check("perf producer", func() error { return j.perf(t.topic(s, "perf")) })
	check("create and delete a topic", func() error { return j.createDelete(t.topic(s, "deleted")) })
	if t.mode == "new" {
		check("configs", func() error { return j.configs(t.topic(s, "perf")) })
		check("delete-records", func() error { return j.deleteRecords(s, t.topic(s, "perf")) })
	}
}

// tool runs one of Kafka's tools.
func (j java) tool(input, class string, args ...string) (string, error) {
	all := append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", j.classpath, "org.apache.kafka.tools." + class}, args...)
	out, err := output(j.ctx, input, "java", all...)
	if err != nil {
		return out, fmt.Errorf("%w %s", err, lastOf(out))
	}
	return out, nil
}

func lastOf(s string) string { return s[max(0, len(s)-500):] }

func (j java) topics(args ...string) error {
	_, err := j.tool("", "TopicCommand", append([]string{"--bootstrap-server", j.bootstrap}, args...)...)
	return err
}

// create makes a topic. The replication factor is said because CreateTopics before version 4 has
// no default.
func (j java) create(topic string, partitions int, more ...string) error {
	return j.topics(append([]string{"--create", "--topic", topic, "--partitions", strconv.Itoa(partitions), "--replication-factor", "1"}, more...)...)
}

// javaValue is line i as a value, javaHeader its header; some are null or absent.
func javaValue(i int) string {
	if i%50 == 49 {
		return isNull
	}
	return lineValue(i)
}

func javaKey(i int) string {
	if i%7 == 3 {
		return isNull
	}
	return lineKey(i)
}

func (j java) produce(topic, codec string) error {
	var in strings.Builder
	for i := range lines {
		fmt.Fprintf(&in, "name:header %d,origin:java\t%s\t%s\n", i, javaKey(i), javaValue(i))
	}
	_, err := j.tool(in.String(), "ConsoleProducer", "--bootstrap-server", j.bootstrap, "--topic", topic,
		"--compression-codec", codec, "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
		"--reader-property", "null.marker="+isNull)
	return err
}

// records reads records from a partition by the console consumer and splits them into fields:
// timestamp, offset, headers, key, value.
func (j java) records(topic string, partition, from, n int) ([][]string, error) {
	args := []string{
		"--bootstrap-server", j.bootstrap, "--topic", topic, "--partition", strconv.Itoa(partition),
		"--offset", strconv.Itoa(from), "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000",
	}
	for _, p := range []string{
		"print.timestamp=true", "print.offset=true", "print.headers=true", "print.key=true", "key.separator=" + fieldEnd,
		"line.separator=" + recordEnd, "headers.separator=" + headerEnd, "null.literal=" + isNull,
	} {
		args = append(args, "--formatter-property", p)
	}
	out, err := j.tool("", "consumer.ConsoleConsumer", args...)
	if err != nil {
		return nil, err
	}
	all := strings.Split(strings.TrimSuffix(out, recordEnd), recordEnd)
	if len(all) != n {
		return nil, fmt.Errorf("%d records, want %d", len(all), n)
	}
	var fields [][]string
	for i, r := range all {
		f := strings.Split(r, fieldEnd)
		if len(f) != 5 {
			return nil, fmt.Errorf("record %d: %d fields in %.80q", i, len(f), r)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func (j java) consume(topic string, offset int, from, to int64) error {
	got, err := j.records(topic, 0, offset, lines-offset)
	if err != nil {
		return err
	}
	for k, f := range got {
		i := offset + k
		ts, err := strconv.ParseInt(strings.TrimPrefix(f[0], "CreateTime:"), 10, 64)
		if err != nil || ts < from || ts > to {
			return fmt.Errorf("record %d: timestamp %s, not within %d to %d", i, f[0], from, to)
		}
		want := []string{fmt.Sprintf("Offset:%d", i), fmt.Sprintf("name:header %d%sorigin:java", i, headerEnd), javaKey(i), javaValue(i)}
		if !slices.Equal(f[1:], want) {
			return fmt.Errorf("record %d: %.200q, want %.200q", i, f[1:], want)
		}
	}
	return nil
}

// readDataset checks what another client wrote, see go/dataset.go.
func (j java) readDataset(topic string) error {
	got, err := j.records(topic, 1, 0, lines)
	if err != nil {
		return err
	}
	for i, f := range got {
		key, value, headers := javaKey(i), javaValue(i), "NO_HEADERS"
		if i%7 == 5 {
			key = ""
		}
		if i%3 == 0 {
			headers = fmt.Sprintf("name:header %d%sbytes:\x00\xff%c", i, headerEnd, 0)
			headers = headers[:len(headers)-1] + string([]byte{byte(i)})
		}
		want := []string{fmt.Sprintf("CreateTime:%d", firstTime+i*1000), fmt.Sprintf("Offset:%d", i), headers, key, value}
		if !slices.Equal(f, want) {
			return fmt.Errorf("record %d: %.200q, want %.200q", i, f, want)
		}
	}
	return nil
}

// lookups asks for all special times and for one within the reference client's data.
func (j java) lookups(t task, s *suite) error {
	questions := map[string]string{"latest": "500", "earliest": "0"}
	topic, partition := t.topic(s, "none"), "0"
	if len(t.read) > 0 {
		topic, partition = t.read[0], "1"
		maps.Copy(questions, map[string]string{
			strconv.Itoa(firstTime + 122_001): "123", strconv.Itoa(firstTime + 600_000): "",
		})
		if t.mode == "new" { // needs ListOffsets 7
			questions["max-timestamp"] = "499"
		}
	}
	for ts, want := range questions {
		out, err := j.tool("", "GetOffsetShell", "--bootstrap-server", j.bootstrap, "--topic-partitions", topic+":"+partition, "--time", ts)
		if err != nil {
			return fmt.Errorf("time %s: %w", ts, err)
		}
		line := strings.TrimSpace(out)
		if want != "" {
			want = topic + ":" + partition + ":" + want
		}
		if line != want && line+":" != want {
			return fmt.Errorf("time %s: %q, want %q", ts, line, want)
		}
	}
	return nil
}

// perfRecords is how much the performance tools write.
const perfRecords = 20_000

func (j java) perf(topic string) error {
	if err := j.create(topic, 4); err != nil {
		return err
	}
	out, err := j.tool("", "ProducerPerformance", "--bootstrap-server", j.bootstrap, "--topic", topic, "--num-records", strconv.Itoa(perfRecords),
		"--record-size", "1000", "--throughput", "-1", "--command-property", "acks=all", "compression.type=lz4")
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%d records sent", perfRecords); !strings.Contains(out, want) {
		return fmt.Errorf("%q lacks %q", lastOf(out), want)
	}
	out, err = j.tool("", "GetOffsetShell", "--bootstrap-server", j.bootstrap, "--topic", topic)
	if err != nil {
		return err
	}
	total := 0
	for _, line := range strings.Fields(out) {
		n, err := strconv.Atoi(line[strings.LastIndexByte(line, ':')+1:])
		if err != nil {
			return fmt.Errorf("no offset in %q", line)
		}
		total += n
	}
	if total != perfRecords {
		return fmt.Errorf("%d records are in the topic, want %d", total, perfRecords)
	}
	return nil
}

func (j java) createDelete(topic string) error {
	if err := j.create(topic, 5, "--config", "retention.ms=3600000"); err != nil {
		return err
	}
	out, err := j.tool("", "TopicCommand", "--bootstrap-server", j.bootstrap, "--describe", "--topic", topic)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "PartitionCount: 5") || !strings.Contains(out, "retention.ms=3600000") {
		return fmt.Errorf("describe says %q", lastOf(out))
	}
	if err := j.create(topic, 5); err == nil {
		return fmt.Errorf("a second creation under the same name was not refused")
	}
	if err := j.topics("--delete", "--topic", topic); err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		out, err = j.tool("", "TopicCommand", "--bootstrap-server", j.bootstrap, "--list")
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(out), topic) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the topic is still listed")
		}
	}
}

// configs changes a topic's setting and reads it back.
func (j java) configs(topic string) error {
	of := []string{"--bootstrap-server", j.bootstrap, "--entity-type", "topics", "--entity-name", topic}
	if _, err := j.tool("", "ConfigCommand", append(of, "--alter", "--add-config", "max.message.bytes=123456")...); err != nil {
		return err
	}
	out, err := j.tool("", "ConfigCommand", append(of, "--describe")...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "max.message.bytes=123456") {
		return fmt.Errorf("describe says %q", lastOf(out))
	}
	return nil
}

func (j java) deleteRecords(s *suite, topic string) error {
	file := filepath.Join(s.temp, "delete-records.json")
	spec := fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"offset":100}]}`, topic)
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		return err
	}
	if _, err := j.tool("", "DeleteRecordsCommand", "--bootstrap-server", j.bootstrap, "--offset-json-file", file); err != nil {
		return err
	}
	out, err := j.tool("", "GetOffsetShell", "--bootstrap-server", j.bootstrap, "--topic-partitions", topic+":0", "--time", "earliest")
	if err != nil {
		return err
	}
	if want := topic + ":0:100"; strings.TrimSpace(out) != want {
		return fmt.Errorf("the start is %q, want %q", strings.TrimSpace(out), want)
	}
	return nil
}
