package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalance(g *globals) *cobra.Command {
	return group("rebalance", "Even out brokers: plan, apply, status, stop, auto",
		`Evens out what brokers have, by moves that copy nothing:

  labels      internal topics on brokers labelled "coordinator", others elsewhere
  partitions  their number, by the brokers' weights, spread over racks
  bytes in    bytes per second that producers write
  bytes out   bytes per second that consumers read

"plan" shows, "apply" does. The controller evens out labels and numbers by itself
unless that is switched off ("auto").`,
		`  tierctl rebalance plan
  tierctl rebalance apply --concurrency 5
  tierctl rebalance status
  tierctl rebalance auto off`,
		newRebalancePlan(g), newRebalanceApply(g), newRebalanceStatus(g), newRebalanceStop(g), newRebalanceAuto(g))
}

// goalFlags choose what is evened out.
type goalFlags struct {
	goals     []string
	tolerance float64
}

func (f *goalFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.goals, "goal", nil, `only these: labels, partitions, "bytes in", "bytes out" (default all)`)
	cmd.Flags().Float64Var(&f.tolerance, "tolerance", 0.1, "how far bytes of a broker may be off its share, as a part of it")
}

func (f *goalFlags) query() string {
	q := url.Values{"tolerance": {strconv.FormatFloat(f.tolerance, 'g', -1, 64)}}
	for _, goal := range f.goals {
		q.Add("goal", goal)
	}
	return q.Encode()
}

// planTables show a plan: every move, then each broker before and after.
func planTables(p *admin.RebalancePlan) []*table {
	brokers := newTable("broker", "rack", "weight", "partitions", "after", "bytes in", "after", "bytes out", "after")
	for i, b := range p.Before {
		a := admin.BrokerLoad{}
		if i < len(p.After) {
			a = p.After[i]
		}
		name := strconv.Itoa(int(b.Broker))
		if b.Draining {
			name += " (draining)"
		}
		rate := func(n float64) string {
			if !p.LoadsKnown {
				return "-"
			}
			return size(int64(n)) + "/s"
		}
		brokers.row(name, dash(b.Rack), b.Weight, b.Partitions, a.Partitions, rate(b.In), rate(a.In), rate(b.Out), rate(a.Out))
	}
	if len(p.Moves) == 0 {
		return []*table{brokers}
	}
	moves := newTable("topic", "partition", "from", "to", "goal", "bytes in", "bytes out")
	for _, m := range p.Moves {
		in, out := "-", "-"
		if p.LoadsKnown {
			in, out = size(int64(m.In))+"/s", size(int64(m.Out))+"/s"
		}
		moves.row(m.Topic, m.Partition, m.From, m.To, m.Goal, in, out)
	}
	return []*table{moves, brokers}
}

// planNote says what a plan could not look at.
func planNote(cmd *cobra.Command, known bool, why string) {
	if !known {
		cmd.PrintErrf("note: bytes are not looked at: %s\n", why)
	}
}

func planSummary(p *admin.RebalancePlan) string {
	if len(p.Moves) == 0 {
		return "nothing to do: the brokers are even"
	}
	return fmt.Sprintf("%s would even out %s", plural(len(p.Moves), "move"), joinWords(p.Goals))
}

func joinWords(list []string) string {
	text := ""
	for i, w := range list {
		switch {
		case i == 0:
		case i == len(list)-1:
			text += " and "
		default:
			text += ", "
		}
		text += w
	}
	return text
}
