package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

const (
	// actionTime bounds one roll or evict of a topic.
	actionTime = 15 * time.Minute
	// actionWorkers bounds how many partitions it works on at a time.
	actionWorkers = 8
)

// ActionResult is the answer of roll and evict.
type ActionResult struct {
	Topic string `json:"topic"`
	Done  int    `json:"done"`
	// Failed partitions kept what they had; trying again is harmless.
	Failed     int            `json:"failed"`
	Partitions []ActionStatus `json:"partitions"`
}

// ActionStatus is what became of one partition. Where no broker answers for it, State is "unknown".
type ActionStatus struct {
	Partition
	Error string `json:"error,omitempty"`
}

type actionRequest struct {
	// Partition restricts the action to one partition.
	Partition *int32 `json:"partition"`
}

// action is something done to partitions where they are.
type action struct {
	name string // in the path
	do   func(context.Context, frame.PartitionID) error
}

func (a *api) roll(w http.ResponseWriter, r *http.Request) {
	x := action{name: "roll"}
	if a.Partitions != nil {
		x.do = a.Partitions.Roll
	}
	a.act(w, r, x)
}

func (a *api) evict(w http.ResponseWriter, r *http.Request) {
	x := action{name: "evict"}
	if a.Partitions != nil {
		x.do = a.Partitions.Evict
	}
	a.act(w, r, x)
}

func (a *api) act(w http.ResponseWriter, r *http.Request, x action) {
	t := a.findTopic(w, r)
	if t == nil {
		return
	}
	var req actionRequest
	if !readBody(w, r, &req, "{} or {\"partition\": N}") {
		return
	}
	here := onlyHere(r)
	chosen := a.statsOf(func(id frame.PartitionID) bool {
		return id.Topic == t.ID && (req.Partition == nil || id.Partition == *req.Partition)
	})
	if p := req.Partition; here && len(chosen) == 0 || p != nil && (*p < 0 || *p >= t.Partitions) {
		writeError(w, http.StatusNotFound, fmt.Errorf("no such partition of topic %q%s", t.Name, at(here, a.BrokerID)))
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTime + writeTimeout)); err != nil {
		a.OnFault(fmt.Errorf("admin: extend deadline: %w", err))
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTime)
	defer cancel()
	if here {
		writeJSON(w, http.StatusOK, a.run(ctx, t.Name, chosen, x.do))
		return
	}
	writeJSON(w, http.StatusOK, a.everywhere(ctx, t, req.Partition, x))
}

func at(here bool, broker int32) string {
	if here {
		return fmt.Sprintf(" on broker %d", broker)
	}
	return ""
}

// run works on the partitions and returns how each of them looks afterwards.
func (a *api) run(ctx context.Context, topic string, chosen []partition.Stats, do func(context.Context, frame.PartitionID) error) ActionResult {
	errs := make([]error, len(chosen))
	var g errgroup.Group
	g.SetLimit(actionWorkers)
	for i := range chosen {
		g.Go(func() error {
			errs[i] = do(ctx, chosen[i].ID)
			return nil // each partition has an answer of its own
		})
	}
	_ = g.Wait()
	after := make(map[frame.PartitionID]partition.Stats, len(chosen))
	a.Partitions.Stats(func(s partition.Stats) bool {
		after[s.ID] = s
		return true
	})
	result := ActionResult{Topic: topic, Partitions: []ActionStatus{}}
	for i := range chosen {
		s, ok := after[chosen[i].ID]
		if !ok {
			s = chosen[i]
		}
		status := ActionStatus{Partition: a.toPartition(&s)}
		if errs[i] != nil {
			status.Error = errs[i].Error()
			result.Failed++
		} else {
			result.Done++
		}
		result.Partitions = append(result.Partitions, status)
	}
	return result
}
