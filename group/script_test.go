package group

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts runs testdata/*.txt. A file is blocks of commands, a line "----", and what they print, ended by an empty
// line. Lines that begin with # are comments.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			old, err := os.ReadFile(file)
			require.NoError(t, err)
			got := runScript(t, string(old))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(old), got)
		})
	}
}

func runScript(t *testing.T, text string) string {
	w := newWorld(Options{})
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		out.WriteString(commands)
		ran := false
		result := ""
		for line := range strings.SplitSeq(commands, "\n") {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			ran = true
			result += w.command(t, line)
		}
		if ran {
			out.WriteString("\n----\n")
			if result == "" {
				result = "(nothing)\n"
			}
			out.WriteString(result)
		} else {
			out.WriteString("\n")
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// world is a machine with its partition, a clock and the calls under way.
type world struct {
	opts    Options
	m       *Machine
	start   time.Time
	now     time.Time
	ids     int
	token   Token
	log     []Record
	topics  topicList
	open    map[Token]bool
	replies map[Token]Reply
}

func newWorld(o Options) *world {
	w := &world{start: time.UnixMilli(1_700_000_000_000).UTC(), open: map[Token]bool{}, replies: map[Token]Reply{}}
	w.now = w.start
	w.opts = o
	w.opts.NewID = func() string { w.ids++; return strconv.Itoa(w.ids) }
	w.boot()
	return w
}

// boot makes a machine from the log, as a new owner does.
func (w *world) boot() {
	w.m = New(w.opts)
	for _, r := range w.log {
		w.m.Apply(r)
	}
	if w.topics != nil {
		w.m.SetTopics(w.topics)
	}
	w.keep(w.m.Loaded(w.now))
}

func (w *world) keep(s Step) Step {
	w.log = append(w.log, s.Records...)
	for _, r := range s.Replies {
		if !w.open[r.Token] {
			panic(fmt.Sprintf("token %d answered twice, or never used", r.Token))
		}
		delete(w.open, r.Token)
		w.replies[r.Token] = r
	}
	return s
}

func (w *world) command(t *testing.T, line string) string {
	name, rest, _ := strings.Cut(line, " ")
	a := readArgs(rest)
	switch name {
	case "options":
		w.setOptions(t, a)
		return ""
	case "topics":
		w.topics = readTopics(rest)
		w.m.SetTopics(w.topics)
		return ""
	case "delete-topics":
		return w.print(w.keep(w.m.TopicsDeleted(w.now, strings.Fields(rest))))
	case "clock":
		d, err := time.ParseDuration(rest)
		require.NoError(t, err)
		return w.advance(d)
	case "crash":
		before := snapshotOf(w.m)
		for tok := range w.open {
			delete(w.open, tok)
		}
		w.boot()
		require.Equal(t, before, snapshotOf(w.m), "replay must give the same state")
		return fmt.Sprintf("same state after replay of %d records\n", len(w.log))
	case "snapshot":
		out := ""
		for r := range w.m.Snapshot() {
			out += "  " + printRecord(r) + "\n"
		}
		return out
	case "compact":
		w.log = w.log[:0]
		for r := range w.m.Snapshot() {
			w.log = append(w.log, r)
		}
		return fmt.Sprintf("%d records\n", len(w.log))
	case "stats":
		s := w.m.Stats()
		return fmt.Sprintf("groups=%v offsets=%d members=%d rebalances=%d expired=%d bad=%d waiting=%d timers=%d\n",
			s.Groups, s.Offsets, s.Members, s.Rebalances, s.Expired, s.BadRecords, len(w.m.waiting), len(w.m.timers.queue))
	}
	req := buildRequest(t, name, a)
	w.token++
	w.open[w.token] = true
	tok := w.token
	s := w.keep(w.m.Handle(w.now, Client{ID: a.str("client", "c"), Host: "/10.0.0.1"}, tok, req))
	out := w.print(s)
	if w.open[tok] {
		out += fmt.Sprintf("#%d waits\n", tok)
	}
	return out
}

// advance moves the clock from deadline to deadline.
func (w *world) advance(d time.Duration) string {
	end := w.now.Add(d)
	out := ""
	for {
		at, ok := w.m.NextDeadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		if s := w.print(w.keep(w.m.Tick(w.now))); s != "" {
			out += fmt.Sprintf("at %v\n%s", w.now.Sub(w.start), s)
		}
	}
	w.now = end
	return out
}

func (w *world) print(s Step) string {
	out := ""
	for _, r := range s.Records {
		out += "  " + printRecord(r) + "\n"
	}
	for _, r := range s.Replies {
		out += fmt.Sprintf("#%d %s\n", r.Token, printReply(r.Response))
	}
	return out
}

func snapshotOf(m *Machine) []Record {
	var out []Record
	for r := range m.Snapshot() {
		out = append(out, r)
	}
	return out
}

func (w *world) setOptions(t *testing.T, a args) {
	duration := func(name string, d *time.Duration) {
		if s := a.str(name, ""); s != "" {
			v, err := time.ParseDuration(s)
			require.NoError(t, err)
			*d = v
		}
	}
	duration("delay", &w.opts.InitialRebalanceDelay)
	duration("retention", &w.opts.OffsetsRetention)
	duration("session", &w.opts.ConsumerSessionTimeout)
	w.opts.MaxSize = a.int("max", w.opts.MaxSize)
	w.opts.ConsumerMaxSize = a.int("consumer-max", w.opts.ConsumerMaxSize)
	w.opts.MaxGroups = a.int("max-groups", w.opts.MaxGroups)
	if s := a.str("migration", ""); s != "" {
		w.opts.ConsumerMigration = map[string]Migration{
			"both": MigrationBoth, "upgrade": MigrationUpgrade, "downgrade": MigrationDowngrade, "disabled": MigrationDisabled,
		}[s]
	}
	w.boot()
}
