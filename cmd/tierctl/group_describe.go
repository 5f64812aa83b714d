package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

type groupDescription struct {
	groupInfo
	Partitions []partitionLag `json:"partitions"`
}

func newGroupDescribe(g *globals) *cobra.Command {
	var quick bool
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's members and how far behind it is",
		Long: `Shows a group's members and, for each partition, the lag: in records, in bytes (an
estimate by the partition's mean record), in time (the age of the first record
that wasn't consumed; it is read, unless --quick), and how much of it has no
local copy any more, so that a replay fetches it from the bucket. Bytes and
bucket come from the admin API and are "-" without it.`,
		Example: "  tierctl group describe billing\n  tierctl group describe billing --quick -o json",
		Args:    args(1, 1, "the name of a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			info, err := coordinated(cmd.Context(), func(ctx context.Context) (*groupInfo, error) { return describeGroup(ctx, client, args[0]) })
			if err != nil {
				return g.unreachable("describe", err)
			}
			rows, err := g.lags(cmd.Context(), client, info)
			if err != nil {
				return err
			}
			if info.State == "Dead" && len(rows) == 0 {
				return fmt.Errorf("there is no group %s", args[0])
			}
			if !quick {
				if err := g.ages(cmd.Context(), rows); err != nil {
					cmd.PrintErrf("note: ages are missing: %s\n", err)
				}
			}
			members := newTable("member", "instance", "client", "host", "partitions")
			for _, m := range info.Members {
				n := 0
				for _, ps := range m.Assigned {
					n += len(ps)
				}
				members.row(m.ID, dash(m.InstanceID), dash(m.ClientID), dash(m.Host), n)
			}
			if g.Output == outputTable {
				assignor := ""
				if info.Assignor != "" {
					assignor = ", assignor " + info.Assignor
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s, %s%s, coordinator broker %d, %d members\n\n", info.Group, info.Type, info.State,
					assignor, info.Coordinator, len(info.Members))
			}
			tables := []*table{members, lagTable(rows)}
			if info.empty() {
				tables = tables[1:]
			}
			return g.print(cmd, groupDescription{*info, rows}, tables...)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "don't read records to find out their age")
	return cmd
}

func lagTable(rows []partitionLag) *table {
	t := newTable("topic", "partition", "committed", "end", "lag", "bytes", "time", "in bucket", "bytes in bucket", "member")
	for _, r := range rows {
		lag := number(r.Records)
		if r.Lost > 0 {
			lag += fmt.Sprintf(" (%d more are deleted)", r.Lost)
		}
		t.row(r.Topic, r.Partition, number(r.Committed), number(r.End), lag, size(r.Bytes), age(r.Ms), number(r.InBucket), size(r.BytesIn), dash(r.Member))
	}
	return t
}
