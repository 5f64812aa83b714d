package main

import (
	"bufio"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier"
)

type objectDump struct {
	Key       string          `json:"key"`
	Size      int64           `json:"size"`
	FooterOff int64           `json:"sections_at"`
	IndexOff  int64           `json:"index_at"`
	Identity  tier.Identity   `json:"identity"`
	Sections  []objectSection `json:"sections"`
	Blocks    []objectBlock   `json:"blocks"`
}

type objectSection struct {
	Type     string `json:"type"`
	Required bool   `json:"required"`
	Off      int64  `json:"off"`
	Len      int64  `json:"len"`
	CRC      uint32 `json:"crc32c"`
}

type objectBlock struct {
	Base         int64  `json:"base"`
	Last         int64  `json:"last"`
	Off          int64  `json:"off"`
	Stored       int64  `json:"stored"`
	Plain        int64  `json:"plain"`
	CRC          uint32 `json:"crc32c"`
	MaxTimestamp int64  `json:"max_timestamp"`
	Records      int64  `json:"records"`
	Batches      int64  `json:"batches"`
	Codec        uint8  `json:"codec"`
}

type objectBatch struct {
	Base       int64  `json:"base"`
	Last       int64  `json:"last"`
	Bytes      int    `json:"bytes"`
	Records    int32  `json:"records"`
	Codec      string `json:"codec"`
	Epoch      int32  `json:"epoch"`
	First      int64  `json:"first_timestamp"`
	Max        int64  `json:"max_timestamp"`
	ProducerID int64  `json:"producer_id"`
	Sequence   int32  `json:"first_sequence"`
}

func newDumpObject(g *globals) *cobra.Command {
	var batches bool
	cmd := &cobra.Command{
		Use:     "object KEY",
		Short:   "Print a data object's identity, sections and blocks",
		Long:    "Prints a data object of the bucket: its identity, sections and block table, and with\n--batches one line per batch. tierctl archive ls TOPIC/PARTITION shows keys.",
		Example: "  tierctl dump object data/7d3a/.../00000000000000000000-0000000000-dffb2df665eab3976f013139.tbd --batches",
		Args:    args(1, 1, "the key of an object"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := g.openBucket(cmd.Context())
			if err != nil {
				return err
			}
			o, err := tier.OpenObject(cmd.Context(), b, toolOp(""), args[0])
			if err != nil {
				return err
			}
			if !batches {
				return g.printTo(cmd.OutOrStdout(), describeObject(o), objectTables(o)...)
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			out := newJSONLines(w)
			err = o.Batches(cmd.Context(), o.Identity.Start, o.Identity.End, func(_ []byte, h *batch.Header) error {
				return out.put(objectBatch{Base: h.BaseOffset, Last: h.LastOffset(), Bytes: h.Size(), Records: h.RecordCount, Codec: h.Codec().String(),
					Epoch: h.LeaderEpoch, First: h.FirstTimestamp, Max: h.MaxTimestamp, ProducerID: h.ProducerID, Sequence: h.FirstSequence})
			})
			return errors.Join(err, w.Flush())
		},
	}
	cmd.Flags().BoolVar(&batches, "batches", false, "one line per batch")
	return cmd
}

func describeObject(o *tier.Object) objectDump {
	d := objectDump{Key: o.Key, Size: o.Size, FooterOff: o.FooterOff, IndexOff: o.IndexOff, Identity: o.Identity}
	for _, s := range o.Sections {
		d.Sections = append(d.Sections, objectSection{s.Type.String(), s.Required, s.Off, s.Len, s.CRC})
	}
	for _, b := range o.Blocks {
		d.Blocks = append(d.Blocks, objectBlock{b.Base, b.Last, b.Off, b.Stored, b.Plain, b.CRC, b.MaxTimestamp, b.Records, b.Batches, b.Codec})
	}
	return d
}

func objectTables(o *tier.Object) []*table {
	i := &o.Identity
	about := newTable("identity", "")
	about.row("topic", i.Topic+"/"+i.ID().String())
	about.row("offsets", formatRange(i.Start, i.End))
	about.row("epoch", i.Epoch)
	about.row("records", i.Records)
	about.row("batches", i.Batches)
	about.row("bytes", size(i.Bytes))
	about.row("timestamps", moment(i.MinTimestamp)+" to "+moment(i.MaxTimestamp))
	about.row("appended", moment(i.MinAppendTime)+" to "+moment(i.MaxAppendTime))
	about.row("created", moment(i.Created))
	sections := newTable("section", "required", "at", "bytes", "crc32c")
	for _, s := range o.Sections {
		sections.row(s.Type, s.Required, s.Off, s.Len, hex32(s.CRC))
	}
	blocks := newTable("block", "base", "last", "at", "stored", "plain", "records", "batches", "newest", "crc32c")
	for n, b := range o.Blocks {
		blocks.row(n, b.Base, b.Last, b.Off, b.Stored, b.Plain, b.Records, b.Batches, moment(b.MaxTimestamp), hex32(b.CRC))
	}
	return []*table{about, sections, blocks}
}

func newDumpHead(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "head TOPIC/PARTITION",
		Short:   "Print a partition's head as JSON",
		Example: "  tierctl dump head logs/0",
		Args:    args(1, -1, "TOPIC/PARTITION or TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := parseSelection(args)
			if err != nil {
				return err
			}
			a, _, err := g.openArchive(cmd.Context())
			if err != nil {
				return err
			}
			heads, err := loadHeads(cmd.Context(), a, s, reportDamage(cmd))
			if err != nil {
				return err
			}
			for _, h := range heads {
				raw, err := h.JSON()
				if err != nil {
					return err
				}
				one := *g
				if one.Output == outputTable {
					one.Output = outputJSON
				}
				if err := one.print(cmd, json.RawMessage(raw)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
