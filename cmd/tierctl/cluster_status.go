package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newClusterStatus(g *globals) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether all is well, and if not what to do",
		Long: `One screen: who leads, which brokers live, whether every partition is served, what
moves, and every problem with what to do about it.

  critical  something isn't served, or can't be kept safe, until somebody acts
  warning   it mends itself, or it will become critical
  info      under way because somebody wished it

The exit code is 0 when there is nothing critical and no warning, 1 otherwise, also
when no node answers. --wait waits so long for all to be well: for scripts that
restart brokers one by one.`,
		Example: `  tierctl cluster status
  tierctl cluster status -o json | jq '.problems[]'
  tierctl cluster status --wait 2m`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := g.clusterStatus(cmd.Context(), wait)
			if err != nil {
				return err
			}
			if g.Output == outputTable {
				err = showStatus(cmd.OutOrStdout(), s)
			} else {
				err = g.print(cmd, s)
			}
			if err == nil && !s.OK {
				return errProblems
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for all to be well")
	return cmd
}

// clusterStatus asks until all is well or the time is over; the last answer counts.
func (g *globals) clusterStatus(ctx context.Context, wait time.Duration) (*admin.ClusterStatus, error) {
	until := time.Now().Add(wait)
	for {
		s := new(admin.ClusterStatus)
		err := g.call(ctx, http.MethodGet, "/api/v1/cluster/status", nil, s)
		if err == nil && s.OK || time.Now().After(until) || ctx.Err() != nil {
			return s, err
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// sleep waits unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// showStatus draws the screen.
func showStatus(w io.Writer, s *admin.ClusterStatus) error {
	verdict := paint(green, "all is well")
	switch s.Level {
	case "critical":
		verdict = paint(red, "something is wrong")
	case "warning":
		verdict = paint(yellow, "something needs attention")
	}
	alive, silent := 0, 0
	for i := range s.Brokers {
		switch b := &s.Brokers[i]; {
		case b.Alive && !b.Answers:
			silent++
		case b.Alive:
			alive++
		}
	}
	brokers := fmt.Sprintf("%d of %d alive", alive, len(s.Brokers))
	if silent > 0 {
		brokers += fmt.Sprintf(", %d not answering", silent)
	}
	controller := "none"
	if s.Controller >= 0 {
		controller = fmt.Sprint(s.Controller)
	}
	moves := "none"
	if n := s.Moves.UnderWay + s.Moves.Waiting; n > 0 {
		moves = fmt.Sprintf("%d under way, %d waiting", s.Moves.UnderWay, s.Moves.Waiting)
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n\n  controller  %s\n  brokers     %s\n  partitions  %d of %d served, in %s\n  moves       %s\n\n", verdict, s.ClusterID,
		controller, brokers, s.Partitions.Served, s.Partitions.Total, plural(s.Topics, "topic"), moves); err != nil {
		return err
	}
	if err := brokerTable(s.Brokers, s.Now).write(w); err != nil {
		return err
	}
	for _, p := range s.Problems {
		color := map[string]string{"critical": red, "warning": yellow}[p.Severity]
		text := fmt.Sprintf("\n%s %s\n", paint(color, fmt.Sprintf("%-9s", p.Severity)), wrap(p.Message, 10))
		if p.Action != "" {
			text += strings.Repeat(" ", 10) + wrap("-> "+p.Action, 13) + "\n"
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
	}
	return nil
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// paint colors a text for a person's terminal.
func paint(color, text string) string {
	if color == "" || os.Getenv("NO_COLOR") != "" || !isTerminal(os.Stdout) {
		return text
	}
	return color + text + "\x1b[0m"
}

// wrap breaks a text into lines of about a hundred columns; all but the first are indented.
func wrap(text string, indent int) string {
	const width = 100
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func plural[N int | int32 | int64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
