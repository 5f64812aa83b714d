package tier

import (
	"context"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// List returns the partitions that have a head, in the order of their keys.
func (a *Archive) List(ctx context.Context) ([]frame.PartitionID, error) {
	var ids []frame.PartitionID
	op := bucket.Op{Class: bucket.ClassTool, Kind: bucket.KindHead}
	err := listAll(ctx, a.opts.Sweep, op, headFolder, func(i bucket.Info) error {
		if id, ok := ParseHeadKey(i.Key); ok {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list heads: %w", err)
	}
	return ids, nil
}

// ListData returns the partitions that have data objects, whether or not there is a head. It asks once per partition, not per
// object.
func (a *Archive) ListData(ctx context.Context) ([]frame.PartitionID, error) {
	var ids []frame.PartitionID
	op := bucket.Op{Class: bucket.ClassTool, Kind: bucket.KindData}
	for after := ""; ; {
		p, err := a.opts.Sweep.List(ctx, op, dataFolder, after, 1)
		if err != nil {
			return nil, fmt.Errorf("list data objects: %w", err)
		}
		if len(p.Items) == 0 {
			return ids, nil
		}
		after = p.Items[0].Key
		if n, ok := ParseDataKey(after); ok {
			ids = append(ids, n.ID)
			after = DataPrefix(n.ID) + "z" // names begin with a digit: the next one belongs to another partition
		}
	}
}
