package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "clients to run, groups, groups/CASE, or reassign, separated by commas (default all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, os.Stdout, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// program is one client: how it is run against a broker's address.
type program struct {
	name string
	// prepare builds or fetches what the client needs.
	prepare func(context.Context, *suite) error
	// run runs all cases of a mode.
	run func(context.Context, *suite, task)
	// newest are the versions of Produce and Fetch that the client uses with a modern broker.
	newest [2]int16
	// caps are exceptions to oldest, where the client speaks nothing that old.
	caps map[int16]int16
}

// task is what a program is asked to do.
type task struct {
	client, mode string // mode is old or new
	bootstrap    string // the proxy's address
	read         []string
}

func (t task) topic(s *suite, what string) string {
	return fmt.Sprintf("%s-%s-%s-%s", s.run, t.client, t.mode, what)
}

func programs() []program {
	return []program{
		// franz-go comes first: the others read what it wrote.
		{name: reference, prepare: prepareGo, run: runGo, newest: [2]int16{13, 18}},
		{name: "sarama", prepare: prepareGo, run: runGo, newest: [2]int16{10, 12}},
		{name: "kafka-go", prepare: prepareGo, run: runGo, newest: [2]int16{8, 10}, caps: map[int16]int16{1: 5}},
		{name: "kafkajs", prepare: prepareJS, run: runJS, newest: [2]int16{7, 11}},
		{name: "platformatic", prepare: prepareJS, run: runJS, newest: [2]int16{11, 17}},
		{name: "kcat", prepare: prepareKcat, run: runKcat, newest: [2]int16{7, 11}},
		{name: "java", prepare: prepareJava, run: runJava, newest: [2]int16{13, 18}, caps: map[int16]int16{3: 4}},
	}
}

// reference is the client whose topics all others read.
const reference = "franz-go"

var codecs = map[string][]string{
	"old": {"none", "gzip", "snappy", "lz4"},
	"new": {"none", "gzip", "snappy", "lz4", "zstd"}, // zstd needs Produce 7 and Fetch 10
}

// run runs the suite and returns how many cases failed. The error is about the suite itself.
func run(ctx context.Context, out io.Writer, only []string) (failed int, err error) {
	root, err := findRoot()
	if err != nil {
		return 0, err
	}
	temp, err := os.MkdirTemp("", "tierbroker-clients-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	s := &suite{out: out, root: root, temp: temp, run: fmt.Sprintf("suite%d", time.Now().UnixMilli())}
	bootstrap := os.Getenv("TIERBROKER_BOOTSTRAP")
	if bootstrap == "" {
		b, err := startBroker(ctx, s, "broker")
		if err != nil {
			return 0, err
		}
		bootstrap = b.kafka
		watched, cancel := b.watch(ctx)
		ctx = watched
		defer func() {
			cancel()
			if stopErr := b.stop(s.failed > 0 || err != nil); stopErr != nil && err == nil {
				err = stopErr
			}
		}()
	}
	for _, p := range programs() {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		if err := p.prepare(ctx, s); err != nil {
			s.fail(p.name+": setup", err)
			continue
		}
		for _, mode := range []string{"new", "old"} {
			if ctx.Err() != nil {
				return s.failed, context.Cause(ctx)
			}
			runProgram(ctx, s, p, mode, bootstrap)
		}
	}
	if len(only) == 0 || slices.Contains(only, reference) {
		s.readBack(ctx, bootstrap)
	}
	runGroups(ctx, s, bootstrap, only)
	if len(only) == 0 || slices.Contains(only, reassign) {
		runReassign(ctx, s)
	}
	if ctx.Err() != nil {
		return s.failed, context.Cause(ctx)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", s.passed, s.failed)
	return s.failed, nil
}

// runProgram runs one client in one mode behind a proxy of its own.
func runProgram(ctx context.Context, s *suite, p program, mode, bootstrap string) {
	x := &proxy{upstream: bootstrap}
	if mode == "old" {
		x.caps = oldest(p.caps)
	}
	addr, err := x.start()
	if err != nil {
		s.fail(p.name+" "+mode+": proxy", err)
		return
	}
	defer x.stop()
	t := task{client: p.name, mode: mode, bootstrap: addr}
	if p.name != reference {
		t.read = s.written[reference]
	}
	begun := time.Now()
	p.run(ctx, s, t)
	for _, codec := range codecs[mode] {
		s.wrote(p.name, t.topic(s, codec))
	}
	s.check(p.name+" "+mode+": API versions "+x.used(), func() error { return x.checkVersions(mode, p.newest) })
	fmt.Fprintf(s.out, "# %s %s took %v\n", p.name, mode, time.Since(begun).Round(100*time.Millisecond))
}

// readBack has the reference client read what all others wrote.
func (s *suite) readBack(ctx context.Context, bootstrap string) {
	var topics []string
	for client, names := range s.written {
		if sameDataset(client) {
			topics = append(topics, names...)
		}
	}
	slices.Sort(topics)
	s.command(ctx, reference+" reading back", filepath.Join(s.temp, "goclients"), []string{reference}, []string{
		"TIERBROKER_BOOTSTRAP=" + bootstrap, "TIERBROKER_MODE=new", "TIERBROKER_RUN=" + s.run,
		"TIERBROKER_READ=" + strings.Join(topics, " "), "TIERBROKER_ONLY_READ=1",
	})
}

// sameDataset says whether the client writes the common data set (kcat and the Java tools can't
// set timestamps).
func sameDataset(client string) bool {
	return client != "kcat" && client != "java" && client != reference
}
