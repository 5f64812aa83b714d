package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
)

type indexPartition struct {
	ID        string `json:"id"`
	Entries   int64  `json:"entries"`
	First     int64  `json:"first_offset"` // -1 when there are no entries
	Last      int64  `json:"last_offset"`
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	Producers int    `json:"producers"`
	MetaBytes int    `json:"meta_bytes"`
	HeadBytes int    `json:"head_bytes"`
}

type indexEntry struct {
	ID           string `json:"id"`
	Base         int64  `json:"base"`
	Last         int64  `json:"last"`
	Position     uint64 `json:"position"`
	Header       uint16 `json:"header_bytes"`
	Length       uint32 `json:"payload_bytes"`
	MaxTimestamp int64  `json:"max_timestamp"`
	AppendTime   int64  `json:"append_time"`
	Epoch        int32  `json:"epoch"`
	Records      int32  `json:"records"`
}

type indexSummary struct {
	Checkpoint    uint64 `json:"checkpoint"`
	HasCheckpoint bool   `json:"has_checkpoint"`
	Extra         string `json:"checkpoint_extra"`
	Partitions    int    `json:"partitions"`
	Files         int    `json:"log_files"`
}

func newDumpIndex() *cobra.Command {
	var (
		f       filter
		entries bool
	)
	cmd := &cobra.Command{
		Use:   "index DATA-DIR",
		Short: "Print what the index knows",
		Long: `Prints one line per partition, or one per batch with --entries, and a summary.
The index is read from a copy in a temporary folder, so that nothing is changed
and the broker may be running.`,
		Example: "  tierctl dump index ./data\n  tierctl dump index ./data --entries --partition 0",
		Args:    args(1, 1, "a data directory"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := f.check(); err != nil {
				return err
			}
			dir, err := subfolder(args[0], "index")
			if err != nil {
				return err
			}
			copied, err := copyFolder(dir)
			if err != nil {
				return fmt.Errorf("copy the index: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(copied)) }()
			s, err := index.Open(index.Options{Dir: copied, ReserveBytes: -1})
			if err != nil {
				return fmt.Errorf("open the index: %w", err)
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			w := bufio.NewWriter(cmd.OutOrStdout())
			defer func() { err = errors.Join(err, w.Flush()) }()
			return dumpIndex(s, newJSONLines(w), &f, entries)
		},
	}
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&entries, "entries", false, "one line per batch")
	return cmd
}

func dumpIndex(s *index.Store, out jsonLines, f *filter, entries bool) error {
	type partition struct {
		id   frame.PartitionID
		meta int
	}
	var partitions []partition
	err := s.Partitions(func(id frame.PartitionID, meta []byte) bool {
		if f.has(id) {
			partitions = append(partitions, partition{id, len(meta)})
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, p := range partitions {
		sum := indexPartition{ID: p.id.String(), First: -1, Last: -1, MetaBytes: p.meta}
		if err := dumpPartition(s, out, p.id, &sum, entries); err != nil {
			return err
		}
	}
	var summary indexSummary
	var extra []byte
	if summary.Checkpoint, extra, summary.HasCheckpoint, err = s.Checkpoint(); err != nil {
		return err
	}
	files, err := s.FileUses()
	if err != nil {
		return err
	}
	summary.Extra, summary.Partitions, summary.Files = string(extra), len(partitions), len(files)
	return out.put(summary)
}

func dumpPartition(s *index.Store, out jsonLines, id frame.PartitionID, sum *indexPartition, entries bool) error {
	var failed error
	err := s.Scan(id, 0, func(e index.Entry) bool {
		if sum.Entries == 0 {
			sum.First = e.Base
		}
		sum.Entries++
		sum.Last = e.Last
		sum.Records += int64(e.Records)
		sum.Bytes += int64(e.Length)
		if entries {
			failed = out.put(indexEntry{ID: sum.ID, Base: e.Base, Last: e.Last, Position: e.Position, Header: e.HeaderLen, Length: e.Length,
				MaxTimestamp: e.MaxTimestamp, AppendTime: e.AppendTime, Epoch: e.Epoch, Records: e.Records})
		}
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	err = s.Producers(id, func(int64, []byte) bool { sum.Producers++; return true })
	if err != nil {
		return err
	}
	head, _, err := s.Head(id)
	if err != nil {
		return err
	}
	sum.HeadBytes = len(head)
	return out.put(sum)
}

// copyFolder copies a folder's files into a temporary one. Tables never change
// once written, so hard links do for them.
func copyFolder(from string) (to string, err error) {
	to, err = os.MkdirTemp("", "tierctl-index-*")
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		if err != nil {
			break
		}
		if !e.Type().IsRegular() || e.Name() == "LOCK" {
			continue
		}
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if filepath.Ext(e.Name()) == ".sst" && os.Link(source, target) == nil {
			continue
		}
		if err = copyFile(source, target); errors.Is(err, fs.ErrNotExist) {
			err = nil // compacted away meanwhile
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(to))
	}
	return to, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, in.Close(), out.Close())
}
