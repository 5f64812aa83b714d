package main

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newBrokerList(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List brokers with what they own",
		Long: `Lists brokers that live, own partitions, or are drained or removed.

  STATUS      alive; stopping (it shuts down and is emptied first); draining and
              drained; removing and removed; dead
  SERVING     partitions it serves, of those it owns
  ONLY HERE   partitions whose last records may be on its disk only: while it is dead
              they wait for it, all others go to other brokers by themselves
  MOVES       partitions that are moving to it and away from it`,
		Example: "  tierctl broker list\n  tierctl broker list -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct{ Brokers []admin.BrokerInfo }
			if err := g.call(cmd.Context(), http.MethodGet, "/api/v1/brokers", nil, &answer); err != nil {
				return err
			}
			return g.print(cmd, answer.Brokers, brokerTable(answer.Brokers, 0))
		},
	}
}

// brokerTable lists brokers; now is 0 for this machine's clock.
func brokerTable(list []admin.BrokerInfo, now int64) *table {
	t := newTable("broker", "status", "address", "rack", "labels", "partitions", "serving", "only here", "moves in", "moves out", "up", "version")
	for i := range list {
		b := &list[i]
		up := "-"
		if b.Alive {
			up = age(sinceMs(now, b.StartedAt))
		}
		address := "-"
		if b.Host != "" {
			address = hostPort(b.Host, b.Port)
		}
		t.row(b.ID, b.Status, address, dash(b.Rack), dash(strings.Join(b.Labels, ",")), b.Partitions, b.Serving, b.OnlyHere, b.MovesIn, b.MovesOut, up, dash(b.Version))
	}
	return t
}
