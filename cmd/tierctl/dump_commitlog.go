package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/segment"
)

type commitLogFrame struct {
	Position    uint64 `json:"position"`
	File        uint64 `json:"file"`
	Type        string `json:"type"`
	ID          string `json:"id"`
	Epoch       int32  `json:"epoch"`
	BaseOffset  int64  `json:"base_offset"`
	Records     int32  `json:"records"`
	AppendTime  string `json:"append_time"`
	Payload     uint32 `json:"payload_bytes"`
	Synced      uint64 `json:"synced"`
	Incarnation uint64 `json:"incarnation"`
}

type commitLogEnd struct {
	Start      uint64               `json:"start"`
	End        uint64               `json:"end"`
	Torn       int64                `json:"torn_bytes"`
	Corruption []commitLogCorrupt   `json:"corruption"`
	Frames     int64                `json:"frames"`
	ByType     map[string]*frameSum `json:"by_type"`
}

type frameSum struct {
	Frames  int64 `json:"frames"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
}

type commitLogCorrupt struct {
	File     string `json:"file"`
	Position uint64 `json:"position"`
	ID       string `json:"id"`
	Reason   string `json:"reason"`
}

func newDumpCommitLog() *cobra.Command {
	var (
		f       filter
		from    uint64
		summary bool
	)
	cmd := &cobra.Command{
		Use:   "commitlog DATA-DIR",
		Short: "Print the frames of a commit log",
		Long: `Prints the headers of all valid frames, one JSON object a line, and a summary at
the end. The broker may be running; then the end of its log may look torn.
Exit code 1 when the log is damaged below its synced end.`,
		Example: "  tierctl dump commitlog ./data --summary\n  tierctl dump commitlog ./data --partition 0 | jq .base_offset",
		Args:    args(1, 1, "a data directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			dir, err := subfolder(args[0], "log")
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			out := newJSONLines(w)
			end := commitLogEnd{ByType: map[string]*frameSum{}, Corruption: []commitLogCorrupt{}}
			found, err := segment.Inspect(segment.Options{Dir: dir}, from, func(x segment.Frame) error {
				if !f.has(x.ID) {
					return nil
				}
				end.add(&x)
				if summary {
					return nil
				}
				return out.put(commitLogFrame{Position: x.Position, File: x.File, Type: x.Type.String(), ID: x.ID.String(), Epoch: x.Epoch,
					BaseOffset: x.BaseOffset, Records: x.RecordCount, AppendTime: moment(x.AppendTime), Payload: x.PayloadLen, Synced: x.Synced, Incarnation: x.Incarnation})
			})
			if err != nil {
				return errors.Join(err, w.Flush())
			}
			end.Start, end.End, end.Torn = found.Start, found.End, found.Torn
			for _, c := range found.Corrupt {
				end.Corruption = append(end.Corruption, commitLogCorrupt{File: c.File, Position: c.Position, ID: c.ID.String(), Reason: c.Reason})
			}
			if err := errors.Join(out.put(end), w.Flush()); err != nil {
				return err
			}
			if len(end.Corruption) > 0 {
				return errProblems
			}
			return nil
		},
	}
	f.addFlags(cmd)
	cmd.Flags().Uint64Var(&from, "from", 0, "position to begin at (default: the oldest)")
	cmd.Flags().BoolVar(&summary, "summary", false, "only the summary")
	return cmd
}

func (e *commitLogEnd) add(x *segment.Frame) {
	e.Frames++
	s := e.ByType[x.Type.String()]
	if s == nil {
		s = new(frameSum)
		e.ByType[x.Type.String()] = s
	}
	s.Frames++
	s.Records += int64(x.RecordCount)
	s.Bytes += int64(x.PayloadLen)
}

// subfolder finds a folder of a data directory, or takes that folder itself.
func subfolder(dataDir, name string) (string, error) {
	sub := filepath.Join(dataDir, name)
	if info, err := os.Stat(sub); err == nil && info.IsDir() {
		return sub, nil
	}
	if filepath.Base(filepath.Clean(dataDir)) == name {
		if info, err := os.Stat(dataDir); err == nil && info.IsDir() {
			return dataDir, nil
		}
	}
	return "", fmt.Errorf("%s is no data directory: it has no folder %s", dataDir, name)
}
