package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/journal"
)

// listGroups answers ListGroups, versions 0 to 5: the groups that this broker coordinates. One shard that is loading makes
// the whole answer an error, as in Kafka: nobody takes a part for the whole.
func (b *Broker) listGroups(ctx context.Context, c *call, req *kmsg.ListGroupsRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.ListGroupsResponse)
	j := b.groups.current()
	if j == nil {
		return out // no group was ever made
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	for shard := range j.Shards() {
		part := kmsg.NewPtrListGroupsRequest()
		part.StatesFilter, part.TypesFilter = req.StatesFilter, req.TypesFilter
		part.SetVersion(c.Version)
		resp, err := b.askShard(ctx, c, shard, part)
		switch {
		case errors.Is(err, journal.ErrNotCoordinator):
			continue // another broker's
		case err != nil:
			out.ErrorCode, out.Groups = b.fail(c, "groups", err), nil
			return out
		}
		got := resp.(*kmsg.ListGroupsResponse)
		if got.ErrorCode != 0 {
			out.ErrorCode, out.Groups = b.failed(c, got.ErrorCode), nil
			return out
		}
		out.Groups = append(out.Groups, got.Groups...)
	}
	return out
}
