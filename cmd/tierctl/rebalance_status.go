package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalanceStatus(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the settings, what moves, and whether there is something to even out",
		Long: `Shows whether the controller evens out by itself, how many moves it makes at a time,
which moves of a rebalance are under way or wait, how many a plan would add, and what
the brokers have. The settings are broker settings (kafka-configs --entity-default):
tierbroker.rebalance.auto, .threshold, .delay.ms, tierbroker.moves.max,
.max.per.broker, .timeout.ms.`,
		Example: "  tierctl rebalance status",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := new(admin.RebalanceStatus)
			if err := g.call(cmd.Context(), http.MethodGet, "/api/v1/rebalance", nil, s); err != nil {
				return err
			}
			planNote(cmd, s.LoadsKnown, s.LoadsError)
			return g.print(cmd, s, rebalanceTables(s)...)
		},
	}
}

func rebalanceTables(s *admin.RebalanceStatus) []*table {
	auto := "off"
	if s.Auto {
		auto = fmt.Sprintf("on: from %d %% off a broker's share, when all have been up for %s", s.Threshold, age(max(s.DelayMs, 1)))
	}
	about := newTable("rebalance", "")
	about.row("automatic", auto)
	about.row("moves at a time", fmt.Sprintf("%d, %d for each broker, given up after %s", s.MovesMax, s.MaxPerBroker, age(s.TimeoutMs)))
	about.row("under way", s.UnderWay)
	about.row("waiting", s.Waiting)
	about.row("to be planned", s.Planned)
	p := &admin.RebalancePlan{Before: s.Brokers, LoadsKnown: s.LoadsKnown}
	brokers := newTable("broker", "rack", "weight", "partitions", "bytes in", "bytes out")
	for _, row := range planTables(p)[0].rows {
		brokers.row(row[0], row[1], row[2], row[3], row[5], row[7])
	}
	return []*table{about, brokers}
}
