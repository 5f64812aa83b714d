package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newBrokerDescribe(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "describe ID",
		Short: "Show one broker: health, topics, moves",
		Long: `Shows what a broker is, what it says about its own health, what it owns of each
topic, and what moves to it or away from it. A dead broker is shown by what it owns.`,
		Example: "  tierctl broker describe 3",
		Args:    args(1, 1, "the id of a broker"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			id, err := brokerID(ids[0])
			if err != nil {
				return err
			}
			d, err := g.adminBroker(cmd.Context(), id)
			if err != nil {
				return err
			}
			return g.print(cmd, d, describeBroker(d)...)
		},
	}
}

func describeBroker(d *admin.BrokerDetail) []*table {
	about := newTable("broker", fmt.Sprint(d.ID))
	about.row("status", d.Status)
	if d.Wish != nil {
		about.row("wished", fmt.Sprintf("%s %s", moment(d.Wish.Since), dash(d.Wish.Why)))
	}
	if d.Alive {
		about.row("address", hostPort(d.Host, d.Port))
		about.row("admin", dash(d.AdminURL))
		about.row("rack", dash(d.Rack))
		about.row("labels", dash(strings.Join(d.Labels, ",")))
		about.row("roles", dash(strings.Join(d.Roles, ",")))
		about.row("weight", d.Weight)
		about.row("version", dash(d.Version))
		about.row("started", moment(d.StartedAt))
		about.row("incarnation", d.Incarnation)
		about.row("controller", d.Controller)
	}
	about.row("partitions", fmt.Sprintf("%d, %d of them served, %d with their last records here only", d.Partitions, d.Serving, d.OnlyHere))
	if h := d.Health; h != nil {
		switch {
		case !h.Answered:
			about.row("health", "unknown: "+h.Error)
		case len(h.Problems) == 0:
			about.row("health", "ok")
		}
		for _, p := range h.Problems {
			about.row("health", p.Component+": "+p.Message)
		}
	}
	tables := []*table{about}
	if len(d.Topics) > 0 {
		t := newTable("topic", "partitions", "only here")
		for _, x := range d.Topics {
			t.row(x.Topic, x.Partitions, x.OnlyHere)
		}
		tables = append(tables, t)
	}
	if len(d.Moves) > 0 {
		tables = append(tables, moveTable(d.Moves))
	}
	return tables
}
