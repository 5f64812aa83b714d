package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// Silent is a broker that has or may have partitions and did not tell of them.
type Silent struct {
	Broker int32  `json:"broker"`
	Error  string `json:"error"`
}

// stateUnknown is the state of a partition that no broker told of.
const stateUnknown = "unknown"

// onlyHere tells that a request is about this node alone.
func onlyHere(r *http.Request) bool { return r.URL.Query().Get("here") == "true" }

// others lists the living brokers except this one.
func (a *api) others(image *cluster.Image) []node {
	var list []node
	for _, b := range image.Brokers() {
		if b.OwnsPartitions() && b.ID != a.BrokerID {
			list = append(list, brokerNode(&b))
		}
	}
	return list
}

// askEach asks nodes at the same time; take is called in the order of the nodes. Those without an answer are returned.
func askEach[T any](ctx context.Context, a *api, nodes []node, path string, take func(node, *T)) []Silent {
	answers, errs := make([]T, len(nodes)), make([]error, len(nodes))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i := range nodes {
		g.Go(func() error {
			errs[i] = a.ask(ctx, nodes[i], path, &answers[i])
			return nil // each has an answer of its own
		})
	}
	_ = g.Wait()
	silent := []Silent{}
	for i, n := range nodes {
		if errs[i] != nil {
			silent = append(silent, Silent{n.id, errs[i].Error()})
			continue
		}
		take(n, &answers[i])
	}
	return silent
}

// dead lists owners of partitions that don't live.
func dead(image *cluster.Image, owners map[int32]bool) []Silent {
	list := []Silent{}
	for id := range owners {
		if _, alive := image.Broker(id); !alive && id != cluster.NoBroker {
			list = append(list, Silent{id, "it is dead"})
		}
	}
	return list
}

// gatherTopics adds to the sums what the other brokers hold.
func (a *api) gatherTopics(ctx context.Context, list *TopicList) {
	image := a.Cluster.Image()
	byID := make(map[string]*Topic, len(list.Topics))
	for _, t := range list.Topics {
		byID[t.ID] = t
	}
	silent := askEach(ctx, a, a.others(image), "/api/v1/topics?here=true", func(_ node, answer *TopicList) {
		for _, x := range answer.Topics {
			if t := byID[x.ID]; t != nil {
				t.merge(x)
			}
		}
	})
	owners := map[int32]bool{}
	for _, as := range image.Assignments() {
		owners[as.Owner] = true
	}
	list.Unanswered = bySilent(append(silent, dead(image, owners)...))
	for _, t := range list.Topics {
		t.missing()
	}
}

// merge adds what another broker holds.
func (t *Topic) merge(x *Topic) {
	t.Known += x.Known
	for state, n := range x.States {
		t.States[state] += n
	}
	t.Offsets += x.Offsets
	t.LocalBytes += x.LocalBytes
	t.ArchiveBytes += x.ArchiveBytes
	t.PendingBytes += x.PendingBytes
	t.RollLagMs = max(t.RollLagMs, x.RollLagMs)
}

// missing counts the partitions that nobody told of.
func (t *Topic) missing() {
	if n := int(t.Partitions) - t.Known; n > 0 {
		t.States[stateUnknown] = n
	}
}

// gatherTopic adds the partitions of the other brokers. A partition that two brokers tell of, in a move, is that with the higher epoch.
func (a *api) gatherTopic(ctx context.Context, t *cluster.Topic, detail *TopicDetail) {
	image := a.Cluster.Image()
	known := map[int32]Partition{}
	for _, p := range detail.PartitionList {
		known[p.Partition] = p
	}
	silent := askEach(ctx, a, a.others(image), "/api/v1/topics/"+url.PathEscape(t.Name)+"?here=true", func(_ node, answer *TopicDetail) {
		if answer.ID != detail.ID {
			return // of the same name, before or after
		}
		for _, p := range answer.PartitionList {
			if had, ok := known[p.Partition]; p.Partition >= 0 && p.Partition < t.Partitions && (!ok || p.Epoch > had.Epoch) {
				known[p.Partition] = p
			}
		}
		detail.merge(&answer.Topic)
	})
	owners := map[int32]bool{}
	detail.PartitionList = detail.PartitionList[:0]
	for n := range t.Partitions {
		id := frame.PartitionID{Topic: t.ID, Partition: n}
		owner := ownerOf(image, id)
		owners[owner] = true
		p, ok := known[n]
		if !ok {
			p = unknown(t.Name, n, owner, reason(owner, silent, dead(image, map[int32]bool{owner: true})))
		}
		detail.PartitionList = append(detail.PartitionList, p)
	}
	detail.Unanswered = bySilent(append(silent, dead(image, owners)...))
	detail.missing()
}

// ownerOf returns the owner of a partition, or cluster.NoBroker.
func ownerOf(image *cluster.Image, id frame.PartitionID) int32 {
	if as, ok := image.Assignment(id); ok {
		return as.Owner
	}
	return cluster.NoBroker
}

func unknown(topic string, n, owner int32, reason string) Partition {
	return Partition{Topic: topic, Partition: n, Broker: owner, State: stateUnknown, Reason: reason, Epoch: -1, Start: -1, LocalStart: -1, Tiered: -1, Durable: -1,
		End: -1, LocalBytes: -1, ArchiveBytes: -1, Extents: -1, PendingBytes: -1, RollLagMs: -1, HeadVersion: -1}
}

// reason says why nothing is known of a partition.
func reason(owner int32, lists ...[]Silent) string {
	if owner == cluster.NoBroker {
		return "no broker owns it"
	}
	for _, s := range slices.Concat(lists...) {
		if s.Broker == owner {
			return fmt.Sprintf("broker %d does not answer: %s", owner, s.Error)
		}
	}
	return fmt.Sprintf("broker %d has not taken it up, or it has just gone elsewhere", owner)
}

func bySilent(list []Silent) []Silent {
	slices.SortFunc(list, func(x, y Silent) int { return int(x.Broker) - int(y.Broker) })
	return slices.CompactFunc(list, func(x, y Silent) bool { return x.Broker == y.Broker })
}

// everywhere has the owners of a topic's partitions carry an action out, or those of one partition.
func (a *api) everywhere(ctx context.Context, t *cluster.Topic, only *int32, x action) ActionResult {
	image := a.Cluster.Image()
	wanted := map[int32]int32{} // partition -> owner
	owners := map[int32]bool{}
	for n := range t.Partitions {
		if only == nil || *only == n {
			wanted[n] = ownerOf(image, frame.PartitionID{Topic: t.ID, Partition: n})
			owners[wanted[n]] = true
		}
	}
	silent := dead(image, owners)
	here := a.statsOf(func(id frame.PartitionID) bool {
		owner, ok := wanted[id.Partition]
		return id.Topic == t.ID && ok && (owner == a.BrokerID || owner == cluster.NoBroker)
	})
	results := a.actAt(ctx, image, owners, t, only, here, x, &silent)
	total := ActionResult{Topic: t.Name, Partitions: []ActionStatus{}}
	for _, r := range results {
		for _, p := range r.Partitions {
			if _, ok := wanted[p.Partition.Partition]; !ok {
				continue
			}
			delete(wanted, p.Partition.Partition)
			total.add(p)
		}
	}
	for n, owner := range wanted {
		why := reason(owner, silent)
		total.add(ActionStatus{Partition: unknown(t.Name, n, owner, why), Error: why})
	}
	slices.SortFunc(total.Partitions, func(x, y ActionStatus) int { return int(x.Partition.Partition) - int(y.Partition.Partition) })
	return total
}

func (r *ActionResult) add(p ActionStatus) {
	if p.Error != "" {
		r.Failed++
	} else {
		r.Done++
	}
	r.Partitions = append(r.Partitions, p)
}

// actAt carries an action out at each of the owners that live, and on the partitions here.
func (a *api) actAt(ctx context.Context, image *cluster.Image, owners map[int32]bool, t *cluster.Topic, only *int32, here []partition.Stats, x action, silent *[]Silent) []ActionResult {
	body := "{}"
	if only != nil {
		body = fmt.Sprintf(`{"partition":%d}`, *only)
	}
	nodes := []node{}
	if len(here) > 0 {
		nodes = append(nodes, a.itself())
	}
	for _, b := range image.Brokers() {
		if owners[b.ID] && b.ID != a.BrokerID {
			nodes = append(nodes, brokerNode(&b))
		}
	}
	results, errs := make([]ActionResult, len(nodes)), make([]error, len(nodes))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i, n := range nodes {
		g.Go(func() error {
			if n.id == a.BrokerID {
				results[i] = a.run(ctx, t.Name, here, x.do)
				return nil
			}
			errs[i] = a.pass(ctx, n, "/api/v1/topics/"+url.PathEscape(t.Name)+"/"+x.name+"?here=true", body, &results[i])
			return nil // each has an answer of its own
		})
	}
	_ = g.Wait()
	for i, n := range nodes {
		if errs[i] != nil {
			*silent = append(*silent, Silent{n.id, errs[i].Error()})
		}
	}
	return results
}

// pass hands a POST to another node. That may take long, so first the node has to give a sign of life.
func (a *api) pass(ctx context.Context, n node, path, body string, v any) error {
	if h := a.askHealth(ctx, n); !h.Answered {
		return errors.New(h.Error)
	}
	return a.call(ctx, n, http.MethodPost, path, body, v)
}
