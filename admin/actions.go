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

// ActionStatus is what became of one partition.
type ActionStatus struct {
	Partition
	Error string `json:"error,omitempty"`
}

type actionRequest struct {
	// Partition restricts the action to one partition.
	Partition *int32 `json:"partition"`
}

func (a *api) roll(w http.ResponseWriter, r *http.Request) { a.act(w, r, a.Partitions.Roll) }

func (a *api) evict(w http.ResponseWriter, r *http.Request) { a.act(w, r, a.Partitions.Evict) }

func (a *api) act(w http.ResponseWriter, r *http.Request, do func(context.Context, frame.PartitionID) error) {
	t := a.findTopic(w, r)
	if t == nil {
		return
	}
	var req actionRequest
	if !readBody(w, r, &req, "{} or {\"partition\": N}") {
		return
	}
	chosen := a.statsOf(func(id frame.PartitionID) bool {
		return id.Topic == t.ID && (req.Partition == nil || id.Partition == *req.Partition)
	})
	if len(chosen) == 0 {
		writeError(w, http.StatusNotFound, fmt.Errorf("no such partition of topic %q on broker %d", t.Name, a.BrokerID))
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTime + writeTimeout)); err != nil {
		a.OnFault(fmt.Errorf("admin: extend deadline: %w", err))
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTime)
	defer cancel()
	writeJSON(w, http.StatusOK, a.run(ctx, t.Name, chosen, do))
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
