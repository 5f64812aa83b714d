package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newBrokerDrain(g *globals) *cobra.Command {
	var why string
	var noWait bool
	cmd := &cobra.Command{
		Use:   "drain ID...",
		Short: "Move all partitions off a broker, for maintenance",
		Long: `Moves everything a broker owns to other brokers and gives it nothing new, until
"undrain". Nothing is copied: each partition's last records go into the bucket and
another broker goes on, with a gap of well under a second.

Waits until the broker is empty; Ctrl-C stops the waiting, not the drain. The broker
stays in the cluster, and may be stopped and started again. Repeating it is harmless.`,
		Example: `  tierctl broker drain 3 --why "new disk"
  tierctl broker drain 1 2 --no-wait`,
		Args: args(1, -1, "the ids of brokers"),
		RunE: func(cmd *cobra.Command, list []string) error {
			return g.empty(cmd, list, emptying{verb: "drain", done: "drained", why: why, noWait: noWait,
				next: "it may be stopped now; tierctl broker undrain %d gives it work again"})
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "a note for other operators")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the controller has been told")
	return cmd
}

// emptying is drain or remove.
type emptying struct {
	verb, done, why string
	noWait          bool
	next            string // what to do then, with the id
}

// empty asks for brokers to be emptied, and waits.
func (g *globals) empty(cmd *cobra.Command, list []string, e emptying) error {
	ids := make([]int32, len(list))
	for i, text := range list {
		var err error
		if ids[i], err = brokerID(text); err != nil {
			return err
		}
	}
	var all []*admin.BrokerDetail
	for _, id := range ids {
		d, err := g.wishBroker(cmd.Context(), id, e.verb, e.why)
		if err != nil {
			return fmt.Errorf("%s broker %d: %w", e.verb, id, err)
		}
		all = append(all, d)
	}
	if !e.noWait {
		for i, id := range ids {
			d, err := g.awaitEmpty(cmd, id, all[i].Partitions, e)
			if err != nil {
				return err
			}
			all[i] = d
		}
	}
	if g.Output != outputTable {
		return g.print(cmd, all)
	}
	for _, d := range all {
		text := fmt.Sprintf("broker %d: %s left to be moved away", d.ID, plural(d.Partitions, "partition"))
		if d.Partitions == 0 {
			text = fmt.Sprintf("broker %d is %s: %s", d.ID, e.done, fmt.Sprintf(e.next, d.ID))
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return nil
}

// quietFor is how long a wait may see no progress before it says so.
const quietFor = 20 * time.Second

// awaitEmpty waits until a broker owns nothing.
func (g *globals) awaitEmpty(cmd *cobra.Command, id int32, total int, e emptying) (*admin.BrokerDetail, error) {
	ctx := cmd.Context()
	bar := newProgress(fmt.Sprintf("%s broker %d", e.verb, id), int64(total), func(n int64) string { return strconv.FormatInt(n, 10) })
	defer bar.finish()
	quiet := newPatience(cmd, bar)
	for {
		d, err := g.adminBroker(ctx, id)
		switch {
		case ctx.Err() != nil:
			cmd.PrintErrf("\nno longer waiting; broker %d goes on being emptied (tierctl broker describe %d; undrain takes it back)\n", id, id)
			return nil, ctx.Err()
		case err != nil:
			if quiet.failed(err) {
				return nil, err
			}
		case d.Wish == nil:
			return nil, fmt.Errorf("broker %d: somebody has taken it back (undrain); %s left there", id, plural(d.Partitions, "partition"))
		case d.Partitions == 0:
			return d, nil
		case !d.Alive && d.OnlyHere > 0:
			return nil, fmt.Errorf("broker %d is dead, and %s may have their last records on its disk only: start it again, and this goes on", id, plural(d.OnlyHere, "partition"))
		default:
			bar.at(int64(total - d.Partitions))
			quiet.look(ctx, g, d.Partitions)
		}
		if sleep(ctx, 300*time.Millisecond) != nil {
			continue // the next look tells
		}
	}
}

// patience says what the cluster says when a wait sees no progress.
type patience struct {
	cmd     *cobra.Command
	bar     *progress
	left    int
	since   time.Time
	failing time.Time
}

func newPatience(cmd *cobra.Command, bar *progress) *patience {
	return &patience{cmd: cmd, bar: bar, left: -1, since: time.Now()}
}

// failed notes that no node answered; true when that has gone on for too long.
func (q *patience) failed(err error) bool {
	if q.failing.IsZero() {
		q.failing = time.Now()
		q.cmd.PrintErrf("\nwaiting for an answer: %v\n", err)
	}
	return time.Since(q.failing) > time.Minute
}

func (q *patience) look(ctx context.Context, g *globals, left int) {
	q.failing = time.Time{}
	if left != q.left {
		q.left, q.since = left, time.Now()
		return
	}
	if time.Since(q.since) < quietFor {
		return
	}
	q.since = time.Now()
	q.cmd.PrintErrf("\nno progress for %s, %d left\n", quietFor, left)
	s, err := g.clusterStatus(ctx, 0)
	if err != nil {
		return // the wait itself tells
	}
	for _, p := range s.Problems {
		if p.Severity != "info" {
			q.cmd.PrintErrf("  %s: %s\n", p.Severity, wrap(p.Message, 4))
			if p.Action != "" {
				q.cmd.PrintErrf("    -> %s\n", wrap(p.Action, 7))
			}
		}
	}
}
