package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartitionForceMove(g *globals) *cobra.Command {
	var to int32
	var yes, noWait bool
	cmd := &cobra.Command{
		Use:   "force-move TOPIC PARTITION",
		Short: "Give up what only a lost broker has, and go on elsewhere",
		Long: `For a partition that waits for a dead broker (or failed at a living one) and whose
last acknowledged records may be on that disk only. It first tells exactly what would
be lost and where the partition would go on, then asks.

Starting the broker again is always better: then nothing is lost. Partitions with
durability "object" never need this.

No offset gets a second content: the partition goes on above every offset that was
ever given to a record, and the gap stays empty. If the lost broker comes back, its
copies of the given-up records no longer belong to the partition.`,
		Example: `  tierctl partition list --problem
  tierctl partition force-move audit 3 --to 2`,
		Args: args(2, 2, "the name of a topic and the number of a partition"),
		RunE: func(cmd *cobra.Command, list []string) error {
			numbers, err := partitionNumbers(list[1:])
			if err != nil {
				return err
			}
			if to < 0 {
				return usagef("--to ID says where to (tierctl broker list shows the brokers)")
			}
			l := new(admin.LossInfo)
			if err := g.call(cmd.Context(), http.MethodGet, fmt.Sprintf("/api/v1/assignments/%s/%d/loss", url.PathEscape(list[0]), numbers[0]), nil, l); err != nil {
				return err
			}
			if !l.Loses {
				return fmt.Errorf("%s/%d needs no force: %s", l.Topic, l.Partition, l.Why)
			}
			if err := explainLoss(cmd.ErrOrStderr(), l, to); err != nil {
				return err
			}
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("Give these records up and serve %s/%d at broker %d?", l.Topic, l.Partition, to), "nothing was changed"); err != nil {
					return err
				}
			}
			return g.movePartitions(cmd, []admin.MoveRequest{{Topic: l.Topic, Partition: l.Partition, To: to, Force: true, Goal: "forced by an operator"}}, noWait)
		},
	}
	cmd.Flags().Int32Var(&to, "to", -1, "id of the broker that goes on")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the controller has been told")
	return cmd
}

// explainLoss says what a forced move loses.
func explainLoss(w io.Writer, l *admin.LossInfo, to int32) error {
	text := fmt.Sprintf("%s/%d (durability %s): %s.\n\n", l.Topic, l.Partition, l.Durability, l.Why)
	add := func(what, format string, args ...any) {
		text += fmt.Sprintf("  %-18s%s\n", what, wrap(fmt.Sprintf(format, args...), 20))
	}
	switch {
	case !l.HeadKnown:
		add("in the bucket", "unknown: %s", l.HeadError)
		add("lost", "unknown: everything that was acknowledged and is not in the bucket")
	default:
		when := ""
		if l.BucketTime >= 0 {
			when = fmt.Sprintf(", the last of them appended %s (%s ago)", moment(l.BucketTime), age(sinceMs(0, l.BucketTime)))
		}
		add("in the bucket", "%s, offsets %d up to %d%s: they stay", plural(l.Records, "record"), l.Start, l.BucketEnd, when)
		if l.Streams > 0 {
			add("", "and what %s of earlier owners hold: the new owner takes it over first", plural(l.Streams, "WAL stream"))
		}
		add("lost", "%s", lossText(l))
	}
	if l.Ceiling >= 0 {
		add("goes on at", "offset %d, the ceiling: no record ever had an offset at or above it. From %d up to there nothing is readable, for ever; consumers jump over it",
			l.Ceiling, l.BucketEnd)
	} else {
		add("goes on at", "the ceiling of its head: no record ever had an offset at or above it")
	}
	add("broker "+nodeID(l.Owner), "if it comes back, its copy of the lost records is no longer part of the partition")
	add("instead", "start broker %d again with its data directory: then nothing is lost and this is not needed", l.Owner)
	_, err := fmt.Fprintln(w, text)
	return err
}

func lossText(l *admin.LossInfo) string {
	switch {
	case l.OwnerEnd > l.BucketEnd:
		return fmt.Sprintf("offsets %d up to %d, %d of them: broker %d has acknowledged them and still answers", l.BucketEnd, l.OwnerEnd, l.OwnerEnd-l.BucketEnd, l.Owner)
	case l.OwnerEnd >= 0:
		return fmt.Sprintf("nothing that is known of: broker %d has acknowledged up to offset %d", l.Owner, l.OwnerEnd)
	}
	text := fmt.Sprintf("everything acknowledged from offset %d on. How much that is only broker %d knew", l.BucketEnd, l.Owner)
	if l.Ceiling >= 0 {
		text += fmt.Sprintf(": less than %d offsets", l.Ceiling-l.BucketEnd)
	}
	return text
}
