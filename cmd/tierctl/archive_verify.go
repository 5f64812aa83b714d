package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

// verifyResult is what verify found.
type verifyResult struct {
	Partitions int             `json:"partitions"`
	Streams    int             `json:"wal_streams"`
	Objects    int64           `json:"objects"`
	Batches    int64           `json:"batches"`
	Records    int64           `json:"records"`
	Bytes      int64           `json:"bytes"`
	Problems   []verifyProblem `json:"problems"`
	Notes      []verifyProblem `json:"notes"`
}

type verifyProblem struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Key       string `json:"key,omitempty"`
	Offset    int64  `json:"offset"` // -1 when it has none
	What      string `json:"what"`
}

func newArchiveVerify(g *globals) *cobra.Command {
	var quick bool
	cmd := &cobra.Command{
		Use:   "verify [TOPIC[/PARTITION]...]",
		Short: "Check heads, objects, checksums, contiguity and indexes",
		Long: `Reads the archive and checks it: every object that a head names is there and says
the same as the head, nothing lies around that no head names, every checksum of
blocks, sections and batches is right, offsets follow each other without a hole,
and the indexes agree with the data. WAL streams are checked too: without a
selection all of them, otherwise those that the partitions still need. Nothing is
changed.

Exit code 0: all is well. 1: problems, listed with object and offset. Notes (an
object that waits for the sweep, or is being uploaded) are no problems.`,
		Example: `  tierctl archive verify
  tierctl archive verify logs/0 --quick
  tierctl archive verify -o json > report.json`,
		RunE: func(cmd *cobra.Command, args []string) error { return g.archiveVerify(cmd, args, quick) },
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "check heads, pages, footers and listings, but read no records")
	return cmd
}

func (g *globals) archiveVerify(cmd *cobra.Command, args []string, quick bool) error {
	ctx := cmd.Context()
	s, err := parseSelection(args)
	if err != nil {
		return err
	}
	a, b, err := g.openArchive(ctx)
	if err != nil {
		return err
	}
	r := verifyResult{Problems: []verifyProblem{}, Notes: []verifyProblem{}}
	if len(s) == 0 {
		// Without it this may be any bucket, in which nothing is wrong because nothing is there.
		if _, err := catalog.ReadRoot(ctx, b); err != nil {
			r.Problems = append(r.Problems, verifyProblem{Key: catalog.RootKey, Offset: -1, What: rootProblem(err)})
		}
	}
	heads, err := loadHeads(ctx, a, s, func(id frame.PartitionID, err error) {
		r.Problems = append(r.Problems, verifyProblem{Topic: id.Topic.String(), Partition: id.Partition, Key: tier.HeadKey(id), Offset: -1, What: err.Error()})
	})
	if err != nil {
		return err
	}
	if len(s) == 0 {
		if err := headless(ctx, a, heads, &r); err != nil {
			return err
		}
	}
	if err := r.heads(ctx, a, heads, quick); err != nil {
		return err
	}
	if err := newStreamCheck(ctx, a, heads).verify(ctx, b, len(s) == 0, quick, &r); err != nil {
		return err
	}
	if err := g.printVerify(cmd, &r); err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return errProblems
	}
	return nil
}

func rootProblem(err error) string {
	if errors.Is(err, catalog.ErrNoRoot) {
		return "there is no cluster root: is this the bucket and prefix of an archive?"
	}
	return err.Error()
}

// headless finds partitions that have objects and no head: a first roll that never
// got to its head, or the remains of a lost one.
func headless(ctx context.Context, a *tier.Archive, heads []*tier.Head, r *verifyResult) error {
	known := make(map[frame.PartitionID]bool, len(heads))
	for _, h := range heads {
		known[h.ID] = true
	}
	for _, p := range r.Problems { // a head that can't be read is a head
		if id, ok := tier.ParseHeadKey(p.Key); ok {
			known[id] = true
		}
	}
	ids, err := a.ListData(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !known[id] {
			r.Problems = append(r.Problems, verifyProblem{Topic: id.Topic.String(), Partition: id.Partition, Key: tier.DataPrefix(id), Offset: -1,
				What: "there are objects, and no head: an upload whose commit failed, or a head that was lost"})
		}
	}
	return nil
}

func (r *verifyResult) heads(ctx context.Context, a *tier.Archive, heads []*tier.Head, quick bool) error {
	var total int64
	for _, h := range heads {
		total += h.Bytes
	}
	if quick {
		total = 0
	}
	bar := newProgress("verify", total, size)
	defer bar.finish()
	for _, h := range heads {
		if h.Tombstone {
			continue
		}
		var last tier.Progress
		err := a.Verify(ctx, h.ID, tier.VerifyOptions{MetaOnly: quick, Progress: func(p tier.Progress) {
			bar.add(p.Bytes - last.Bytes)
			last = p
		}}, func(p tier.Problem) {
			x := verifyProblem{Topic: h.Topic, Partition: h.ID.Partition, Key: p.Key, Offset: p.Offset, What: p.What}
			if p.Note {
				r.Notes = append(r.Notes, x)
			} else {
				r.Problems = append(r.Problems, x)
			}
		})
		if errors.Is(err, tier.ErrNoHead) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		r.Partitions++
		r.Objects += h.Objects
		r.Batches, r.Records, r.Bytes = r.Batches+last.Batches, r.Records+last.Records, r.Bytes+last.Bytes
	}
	return nil
}

func (g *globals) printVerify(cmd *cobra.Command, r *verifyResult) error {
	if g.Output != outputTable {
		return g.print(cmd, r)
	}
	t := newTable("", "topic", "partition", "offset", "object", "what")
	add := func(kind string, list []verifyProblem) {
		for _, p := range list {
			offset := "-"
			if p.Offset >= 0 {
				offset = fmt.Sprint(p.Offset)
			}
			partition := "-"
			if p.Partition >= 0 {
				partition = fmt.Sprint(p.Partition)
			}
			t.row(kind, p.Topic, partition, offset, dash(p.Key), p.What)
		}
	}
	add("problem", r.Problems)
	add("note", r.Notes)
	if len(t.rows) > 0 {
		if err := g.print(cmd, r, t); err != nil {
			return err
		}
	}
	read := fmt.Sprintf("%s, %s, %s read", plural(r.Batches, "batch"), plural(r.Records, "record"), size(r.Bytes))
	if r.Batches == 0 {
		read = "no records read"
	}
	streams := ""
	if r.Streams > 0 {
		streams = plural(r.Streams, "WAL stream") + ", "
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, %s, %s%s: %s, %s\n", plural(r.Partitions, "partition"), plural(r.Objects, "extent"), streams, read,
		plural(len(r.Problems), "problem"), plural(len(r.Notes), "note"))
	return err
}
