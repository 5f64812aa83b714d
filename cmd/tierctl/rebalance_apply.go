package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalanceApply(g *globals) *cobra.Command {
	var f goalFlags
	var a applying
	var file string
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the moves of a plan, so many at a time",
		Long: `Shows the plan, asks, and makes its moves, at most --concurrency at a time (never more
than tierbroker.moves.max, which the controller holds to).

It may be stopped at any time: Ctrl-C takes back what has not begun, waits for nothing,
and leaves every partition served where it is. Running it again goes on with what is
left, since a plan only looks at how things stand. If this program dies, only the
moves it had asked for are still made.

--no-wait hands the whole plan to the controller and returns.`,
		Example: `  tierctl rebalance apply
  tierctl rebalance apply --yes --concurrency 5 --goal partitions
  tierctl rebalance apply --plan plan.json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := g.planToApply(cmd, f, file)
			if err != nil {
				return err
			}
			planNote(cmd, p.LoadsKnown, p.LoadsError)
			return g.apply(cmd, p, a)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&a.atOnce, "concurrency", 0, "moves at a time (default tierbroker.moves.max)")
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&a.noWait, "no-wait", false, "hand the plan to the controller and return")
	cmd.Flags().StringVar(&file, "plan", "", "file with a plan of \"tierctl rebalance plan -o json\", - for standard input")
	return cmd
}

// maxPlan bounds a plan's file.
const maxPlan = 256 << 20

func (g *globals) planToApply(cmd *cobra.Command, f goalFlags, file string) (*admin.RebalancePlan, error) {
	p := new(admin.RebalancePlan)
	if file == "" {
		return p, g.call(cmd.Context(), http.MethodGet, "/api/v1/rebalance/plan?"+f.query(), nil, p)
	}
	in := cmd.InOrStdin()
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, usagef("--plan: %w", err)
		}
		defer opened.Close() //nolint:errcheck // opened for reading only
		in = opened
	}
	if err := json.NewDecoder(io.LimitReader(in, maxPlan)).Decode(p); err != nil {
		return nil, usagef("--plan %s is not a plan of \"tierctl rebalance plan -o json\": %w", file, err)
	}
	return p, nil
}

// applying is how a plan is applied.
type applying struct {
	atOnce      int
	yes, noWait bool
}

func (g *globals) apply(cmd *cobra.Command, p *admin.RebalancePlan, a applying) error {
	if len(p.Moves) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), planSummary(p))
		return err
	}
	if !a.yes {
		if err := g.printTo(cmd.ErrOrStderr(), p, planTables(p)...); err != nil {
			return err
		}
		if err := confirm(cmd, fmt.Sprintf("Make %s?", plural(len(p.Moves), "move")), "nothing was changed"); err != nil {
			return err
		}
	}
	moves := make([]admin.MoveRequest, len(p.Moves))
	for i, m := range p.Moves {
		moves[i] = admin.MoveRequest{Topic: m.Topic, Partition: m.Partition, To: m.To, Goal: "rebalance: " + m.Goal}
	}
	if a.noWait {
		set, err := g.wishMoves(cmd.Context(), moves)
		if err != nil {
			return fmt.Errorf("%d of %s asked for: %w", set, plural(len(moves), "move"), err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s asked for (tierctl rebalance status shows them, tierctl rebalance stop takes them back)\n", plural(set, "move"))
		return err
	}
	var s admin.RebalanceStatus
	if err := g.call(cmd.Context(), http.MethodGet, "/api/v1/rebalance", nil, &s); err != nil {
		return err
	}
	if a.atOnce <= 0 || a.atOnce > s.MovesMax {
		a.atOnce = s.MovesMax
	}
	w := window{g: g, cmd: cmd, moves: moves, atOnce: a.atOnce, open: map[place]admin.MoveRequest{},
		bar: newProgress("rebalance", int64(len(moves)), func(n int64) string { return strconv.FormatInt(n, 10) })}
	err := w.run()
	w.bar.finish()
	if err != nil {
		return errors.Join(err, w.stop())
	}
	asked := map[place]int32{}
	for _, m := range moves {
		asked[place{m.Topic, m.Partition}] = m.To
	}
	lost, err := g.missed(cmd.Context(), asked)
	if err != nil {
		return err
	}
	if err := cameToNothing(lost, len(moves)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s made\n", plural(len(moves), "move"))
	return err
}

// window keeps so many moves of a plan asked for.
type window struct {
	g      *globals
	cmd    *cobra.Command
	moves  []admin.MoveRequest
	next   int // moves[next:] were not asked for
	atOnce int
	open   map[place]admin.MoveRequest
	bar    *progress
}

func (w *window) run() error {
	ctx := w.cmd.Context()
	quiet := newPatience(w.cmd, w.bar)
	for {
		var batch []admin.MoveRequest
		for w.next < len(w.moves) && len(w.open) < w.atOnce && len(batch) < movesAtOnce {
			m := w.moves[w.next]
			w.open[place{m.Topic, m.Partition}] = m
			batch = append(batch, m)
			w.next++
		}
		if len(batch) > 0 {
			if _, err := w.g.wishMoves(ctx, batch); err != nil {
				return err
			}
		}
		if len(w.open) == 0 && w.next == len(w.moves) {
			return nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		list, err := w.g.adminMoves(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if quiet.failed(err) {
				return err
			}
			continue
		}
		still := map[place]bool{}
		for i := range list {
			still[place{list[i].Topic, list[i].Partition}] = true
		}
		for p := range w.open {
			if !still[p] {
				delete(w.open, p)
			}
		}
		w.bar.at(int64(w.next - len(w.open)))
		quiet.look(ctx, w.g, len(w.moves)-w.next+len(w.open))
	}
}

// stop takes back what was asked for and has not begun.
func (w *window) stop() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.cmd.Context()), 20*time.Second)
	defer cancel()
	list := []map[string]any{}
	for p := range w.open {
		list = append(list, map[string]any{"topic": p.topic, "partition": p.partition})
	}
	var r admin.CancelResult
	if len(list) > 0 {
		if err := w.g.call(ctx, http.MethodPost, "/api/v1/moves/cancel", map[string]any{"moves": list}, &r); err != nil {
			return fmt.Errorf("what was asked for could not be taken back and is still made (tierctl rebalance stop): %w", err)
		}
	}
	w.cmd.PrintErrf("stopped: %d of %s made, %d taken back (%d of these were nearly done and end as they began); running it again goes on\n",
		w.next-len(w.open), plural(len(w.moves), "move"), r.Canceled, r.Ending)
	return nil
}
