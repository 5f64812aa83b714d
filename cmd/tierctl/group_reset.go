package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type resetOptions struct {
	to, file   string
	topics     []string
	partitions []int32
	apply      bool
}

// resetRow is one offset that moves.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       int64  `json:"old"` // -1: nothing was committed
	New       int64  `json:"new"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag_records"` // behind the new offset
	Clamped   bool   `json:"clamped,omitempty"`
}

func newGroupReset(g *globals) *cobra.Command {
	var o resetOptions
	cmd := &cobra.Command{
		Use:   "reset GROUP",
		Short: "Move a group's offsets",
		Long: `Moves the offsets of a group without members. Without --apply it only shows what
would change. --to takes earliest, latest, an offset, a time
(2015-07-29T19:04:12Z, 2015-07-29), @MILLISECONDS, or a span before now (-90m,
-7d). --from-file takes lines TOPIC,PARTITION,OFFSET ("-" is standard input).
Without --topic, all topics that the group has offsets for are moved. Offsets outside of a
partition are moved to its nearer end.`,
		Example: `  tierctl group reset billing --to earliest
  tierctl group reset billing --topic audit --to 2015-07-29T19:00:00Z --apply
  tierctl group reset billing --to -2h --apply
  tierctl group reset billing --from-file offsets.csv --apply`,
		Args: args(1, 1, "the name of a group"),
		RunE: func(cmd *cobra.Command, args []string) error { return g.reset(cmd, args[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "where to: earliest, latest, an offset, a time, or a span before now")
	f.StringVar(&o.file, "from-file", "", "file of lines TOPIC,PARTITION,OFFSET")
	f.StringSliceVar(&o.topics, "topic", nil, "topics to move; default: all that the group has offsets for")
	f.Int32SliceVar(&o.partitions, "partition", nil, "partitions of the one topic to move; default: all")
	f.BoolVar(&o.apply, "apply", false, "do it")
	return cmd
}

func (g *globals) reset(cmd *cobra.Command, name string, o resetOptions) error {
	switch {
	case (o.to == "") == (o.file == ""):
		return usagef("give one of --to and --from-file")
	case len(o.partitions) > 0 && len(o.topics) != 1:
		return usagef("--partition needs exactly one --topic")
	case o.file != "" && len(o.topics) > 0:
		return usagef("--from-file names the topics: --topic doesn't go with it")
	}
	client, done, err := g.kadm()
	if err != nil {
		return err
	}
	defer done()
	ctx := cmd.Context()
	info, err := coordinated(ctx, func(ctx context.Context) (*groupInfo, error) { return describeGroup(ctx, client, name) })
	if err != nil {
		return g.unreachable("reset", err)
	}
	if o.apply && !info.empty() {
		return fmt.Errorf("group %s has %d members: stop them first, or they would overwrite the offsets", name, len(info.Members))
	}
	rows, err := g.planReset(ctx, cmd.InOrStdin(), client, name, o)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("group %s has no offsets; --topic names what to set", name)
	}
	t := newTable("topic", "partition", "old", "new", "lag then", "note")
	var moved kadm.Offsets
	for _, r := range rows {
		note := ""
		if r.Clamped {
			note = fmt.Sprintf("moved into %s", formatRange(r.Start, r.End))
		}
		t.row(r.Topic, r.Partition, number(r.Old), r.New, r.Lag, dash(note))
		moved.AddOffset(r.Topic, r.Partition, r.New, -1)
	}
	if o.apply {
		commit := func(ctx context.Context) (kadm.OffsetResponses, error) { return commitAll(ctx, client, name, moved) }
		if _, err := coordinated(ctx, commit); err != nil {
			return g.unreachable("reset "+name, err)
		}
	}
	if err := g.print(cmd, rows, t); err != nil {
		return err
	}
	if !o.apply {
		cmd.PrintErrln("nothing was changed: --apply does it")
	}
	return nil
}

func commitAll(ctx context.Context, client *kadm.Client, name string, moved kadm.Offsets) (kadm.OffsetResponses, error) {
	resp, err := client.CommitOffsets(ctx, name, moved)
	if err != nil {
		return nil, err
	}
	return resp, resp.Error()
}

// planReset finds the new offsets.
func (g *globals) planReset(ctx context.Context, stdin io.Reader, client *kadm.Client, name string, o resetOptions) ([]resetRow, error) {
	committed, err := coordinated(ctx, func(ctx context.Context) (kadm.OffsetResponses, error) { return client.FetchOffsets(ctx, name) })
	if err != nil {
		return nil, g.unreachable("fetch offsets of "+name, err)
	}
	var want map[string]map[int32]int64
	if o.file != "" {
		want, err = readOffsets(stdin, o.file)
	} else {
		want, err = g.wanted(ctx, client, committed, o)
	}
	if err != nil {
		return nil, err
	}
	rows := []resetRow{}
	for topic, ps := range want {
		found := 0
		if err := g.ends(ctx, client, topic, func(p int32, start, end int64) {
			at, ok := ps[p]
			if !ok {
				return
			}
			found++
			r := resetRow{Topic: topic, Partition: p, Old: -1, Start: start, End: end, New: min(max(at, start), end)}
			r.Clamped, r.Lag = r.New != at, end-r.New
			if c, ok := committed.Lookup(topic, p); ok {
				r.Old = c.At
			}
			rows = append(rows, r)
		}); err != nil {
			return nil, err
		}
		if found < len(ps) {
			return nil, fmt.Errorf("topic %s has only %d of the %d partitions to move", topic, found, len(ps))
		}
	}
	slices.SortFunc(rows, func(a, b resetRow) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rows, nil
}

// wanted resolves --to. Without --topic it moves the partitions that have offsets.
func (g *globals) wanted(ctx context.Context, client *kadm.Client, committed kadm.OffsetResponses, o resetOptions) (map[string]map[int32]int64, error) {
	at, err := parsePosition("to", o.to, time.Now())
	if err != nil {
		return nil, err
	}
	topics := o.topics
	if len(topics) == 0 {
		for t := range committed {
			topics = append(topics, t)
		}
	}
	want := map[string]map[int32]int64{}
	for _, t := range topics {
		all, err := g.offsets(ctx, client, t, at)
		if err != nil {
			return nil, err
		}
		chosen := map[int32]int64{}
		for p, off := range all {
			_, has := committed.Lookup(t, p)
			if len(o.topics) > 0 && (len(o.partitions) == 0 || slices.Contains(o.partitions, p)) || len(o.topics) == 0 && has {
				chosen[p] = off
			}
		}
		for _, p := range o.partitions {
			if _, ok := chosen[p]; !ok {
				return nil, usagef("topic %s has no partition %d (it has %d)", t, p, len(all))
			}
		}
		want[t] = chosen
	}
	return want, nil
}

// readOffsets reads lines TOPIC,PARTITION,OFFSET, as Kafka's own tool writes them.
func readOffsets(stdin io.Reader, path string) (map[string]map[int32]int64, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usagef("--from-file: %w", err)
		}
		defer f.Close() //nolint:errcheck // opened for reading only
		in = f
	}
	want := map[string]map[int32]int64{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		topic, p, off, err := offsetLine(line)
		if err != nil {
			return nil, usagef("--from-file %s:%d: %w", path, n, err)
		}
		if want[topic] == nil {
			want[topic] = map[int32]int64{}
		}
		if _, twice := want[topic][p]; twice {
			return nil, usagef("--from-file %s:%d: partition %d of %s comes twice", path, n, p, topic)
		}
		want[topic][p] = off
	}
	return want, lines.Err()
}

func offsetLine(line string) (topic string, p int32, off int64, err error) {
	fields := strings.Split(strings.ReplaceAll(line, `"`, ""), ",")
	if len(fields) != 3 || strings.TrimSpace(fields[0]) == "" {
		return "", 0, 0, errors.New("not TOPIC,PARTITION,OFFSET")
	}
	n, err := strconv.ParseInt(strings.TrimSpace(fields[1]), 10, 32)
	if err != nil || n < 0 {
		return "", 0, 0, fmt.Errorf("%q is not a partition", fields[1])
	}
	off, err = strconv.ParseInt(strings.TrimSpace(fields[2]), 10, 64)
	if err != nil || off < 0 {
		return "", 0, 0, fmt.Errorf("%q is not an offset", fields[2])
	}
	return strings.TrimSpace(fields[0]), int32(n), off, nil
}
