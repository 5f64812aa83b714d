package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/tier/wal"
)

// walObject is what a WAL object says about itself.
type walObject struct {
	Key                string `json:"key"`
	Broker             int32  `json:"broker"`
	Incarnation        string `json:"incarnation"`
	Seq                uint64 `json:"seq"`
	Bytes              int64  `json:"bytes"`
	Seal               bool   `json:"seal"`
	Floor              uint64 `json:"floor"`
	Acked              uint64 `json:"acked"`
	Writer             string `json:"writer"`
	Attempt            string `json:"attempt"`
	ClusterID          string `json:"cluster_id,omitempty"`
	ClusterIncarnation string `json:"cluster_incarnation"`
	Created            int64  `json:"created,omitempty"`
	Combined           int    `json:"combined_footers"`
	Parts              int    `json:"parts"`
}

type walPart struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"`
	Partition int32  `json:"partition"`
	Epoch     int32  `json:"epoch"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Off       int64  `json:"off"`
	Len       int64  `json:"len"`
	CRC       string `json:"crc32c"`
	Batches   int    `json:"batches"`
	Records   int64  `json:"records"`
	Newest    int64  `json:"max_timestamp"`
}

func newDumpWAL(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "wal KEY",
		Short: "Print a WAL object's header and parts, or a seal",
		Long: `Prints what an object of a broker's WAL stream says about itself: one JSON line for
the object, and one for each part. tierctl archive ls TOPIC/PARTITION shows the
keys of objects that a partition still needs.`,
		Example: "  tierctl dump wal wal/31cd/1/9b0a2c.../00000000000000000017",
		Args:    args(1, 1, "the key of a WAL object"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := g.openBucket(cmd.Context())
			if err != nil {
				return err
			}
			o, err := wal.ReadObject(cmd.Context(), b, toolOp(""), args[0])
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			out := newJSONLines(w)
			err = out.put(walObject{Key: o.Key, Broker: o.Stream.Broker, Incarnation: o.Stream.Incarnation, Seq: o.Seq, Bytes: o.Size, Seal: o.Seal,
				Floor: o.Floor, Acked: o.Acked, Writer: o.Writer, Attempt: o.Attempt, ClusterID: o.ClusterID, ClusterIncarnation: o.ClusterIncarnation,
				Created: o.Created, Combined: len(o.Combined), Parts: len(o.Entries)})
			for i := range o.Entries {
				e := &o.Entries[i]
				err = errors.Join(err, out.put(walPart{Topic: e.Topic, TopicID: e.ID.Topic.String(), Partition: e.ID.Partition, Epoch: e.Epoch, Start: e.Start, End: e.End,
					Off: e.Off, Len: e.Len, CRC: hex32(e.CRC), Batches: len(e.Batches), Records: e.Records, Newest: e.MaxTimestamp}))
			}
			return errors.Join(err, w.Flush())
		},
	}
}
