package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// manyGroups is a question about many groups, which their coordinators answer in parts.
type manyGroups[G any] struct {
	names []string
	part  func(of []int) kmsg.Request                    // the request about some of them, by their numbers
	taken func(resp kmsg.Response) []G                   // an answer's groups, in the order of its request
	code  func(g *G) int16                               // what a group's answer says
	fail  func(g *G, name string, code int16, err error) // makes an answer for a group whose coordinator gave none
}

// ask returns the answers in the order of names. Coordinators are asked once for all groups of a shard.
func (q *manyGroups[G]) ask(ctx context.Context, b *Broker, c *call) []G {
	out := make([]G, len(q.names))
	b.askEach(ctx, c, q.names, q.part, func(of []int, resp kmsg.Response, err error) {
		var got []G
		if err == nil {
			if got = q.taken(resp); len(got) != len(of) {
				err = fmt.Errorf("%d groups were asked for and %d answered", len(of), len(got))
			}
		}
		for n, i := range of {
			if err != nil {
				q.fail(&out[i], q.names[i], b.fail(c, q.names[i], err), err)
				continue
			}
			out[i] = got[n]
			b.failed(c, q.code(&out[i]))
		}
	})
	return out
}

// askEach has the coordinators of many groups answer: one request per shard, made by part of the numbers of its
// groups. take gets each answer, or the error in its place.
func (b *Broker) askEach(ctx context.Context, c *call, names []string, part func(of []int) kmsg.Request, take func(of []int, resp kmsg.Response, err error)) {
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	j := b.groups.current()
	if j == nil {
		all := make([]int, len(names))
		for i := range all {
			all[i] = i
		}
		take(all, nil, kerr.NotCoordinator)
		return
	}
	by := map[int32][]int{}
	var order []int32
	for i, name := range names {
		s := shardOf(name, j.Shards())
		if by[s] == nil {
			order = append(order, s)
		}
		by[s] = append(by[s], i)
	}
	for _, s := range order {
		req := part(by[s])
		req.SetVersion(c.Version)
		resp, err := b.askShard(ctx, c, s, req)
		take(by[s], resp, err)
	}
}

// unique returns each name once, in their first order: an answer must not be much larger than its request.
func unique(names []string) []string {
	seen := make(map[string]struct{}, len(names))
	out := make([]string, 0, len(names))
	for _, n := range names {
		if _, again := seen[n]; !again {
			seen[n] = struct{}{}
			out = append(out, n)
		}
	}
	return out
}

// pick returns some of a list, by their numbers.
func pick[T any](list []T, numbers []int) []T {
	out := make([]T, len(numbers))
	for n, i := range numbers {
		out[n] = list[i]
	}
	return out
}
