package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartition(g *globals) *cobra.Command {
	return group("partition", "Partitions: list, move, moves, cancel, force-move",
		`Shows who owns which partition, and moves partitions between brokers. A move copies
nothing: the target loads the partition's head from the bucket, the owner brings its
last records there, and the target goes on.`,
		`  tierctl partition list --problem
  tierctl partition move audit 3 --to 2
  tierctl partition moves
  tierctl partition force-move audit 3 --to 2   # when its broker's disk is lost`,
		newPartitionList(g), newPartitionMove(g), newPartitionMoves(g), newPartitionCancel(g), newPartitionForceMove(g))
}

// partitionNumbers reads the numbers of partitions.
func partitionNumbers(list []string) ([]int32, error) {
	numbers := make([]int32, 0, len(list))
	for _, text := range list {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, usagef("%q is not the number of a partition", text)
		}
		numbers = append(numbers, int32(n))
	}
	return numbers, nil
}

// adminAssignments reads all pages of the partitions that a query chooses.
func (g *globals) adminAssignments(ctx context.Context, query url.Values) ([]admin.Assignment, error) {
	all := []admin.Assignment{}
	query.Set("limit", "5000")
	for {
		var page admin.AssignmentPage
		if err := g.call(ctx, http.MethodGet, "/api/v1/assignments?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Partitions...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// movesAtOnce is how many moves one request asks for.
const movesAtOnce = 200

// wishMoves asks for moves, in as many requests as they need.
func (g *globals) wishMoves(ctx context.Context, moves []admin.MoveRequest) (set int, err error) {
	for part := range slices.Chunk(moves, movesAtOnce) {
		var r admin.MoveResult
		if err := g.call(ctx, http.MethodPost, "/api/v1/moves", map[string]any{"moves": part}, &r); err != nil {
			return set, err
		}
		set += r.Set
	}
	return set, nil
}

func (g *globals) adminMoves(ctx context.Context) ([]admin.MoveInfo, error) {
	var answer struct{ Moves []admin.MoveInfo }
	return answer.Moves, g.call(ctx, http.MethodGet, "/api/v1/moves", nil, &answer)
}

// place names a partition.
type place struct {
	topic     string
	partition int32
}

// awaitMoves waits until none of the moves is under way or wished for any more, and returns those that came to nothing.
func (g *globals) awaitMoves(cmd *cobra.Command, moves []admin.MoveRequest, bar *progress) (lost []admin.Assignment, err error) {
	ctx := cmd.Context()
	asked := make(map[place]int32, len(moves))
	for _, m := range moves {
		asked[place{m.Topic, m.Partition}] = m.To
	}
	quiet := newPatience(cmd, bar)
	for {
		list, err := g.adminMoves(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			if quiet.failed(err) {
				return nil, err
			}
		default:
			left := 0
			for i := range list {
				if to, ok := asked[place{list[i].Topic, list[i].Partition}]; ok && to == list[i].To {
					left++
				}
			}
			bar.at(int64(len(moves) - left))
			if left == 0 {
				return g.missed(ctx, asked)
			}
			quiet.look(ctx, g, left)
		}
		if sleep(ctx, 200*time.Millisecond) != nil {
			continue // the next look tells
		}
	}
}

// missed returns the partitions that are not where they were to go.
func (g *globals) missed(ctx context.Context, asked map[place]int32) ([]admin.Assignment, error) {
	topics := map[string]bool{}
	for p := range asked {
		topics[p.topic] = true
	}
	var lost []admin.Assignment
	for topic := range topics {
		list, err := g.adminAssignments(ctx, url.Values{"topic": {topic}})
		if err != nil {
			return nil, err
		}
		for i := range list {
			if to, ok := asked[place{topic, list[i].Partition}]; ok && list[i].Owner != to {
				lost = append(lost, list[i])
			}
		}
	}
	return lost, nil
}

// cameToNothing is the error for moves that the controller has given up.
func cameToNothing(lost []admin.Assignment, moves int) error {
	if len(lost) == 0 {
		return nil
	}
	p := lost[0]
	where := fmt.Sprintf("is at broker %d", p.Owner)
	if p.Problem != "" {
		where += " and " + p.Problem
	}
	return fmt.Errorf("%d of %s came to nothing, among them %s/%d, which %s: the target died or was drained, or the move was given up or taken back; "+
		"the log of the leading controller says which. Repeating is harmless", len(lost), plural(moves, "move"), p.Topic, p.Partition, where)
}
