package admin

import (
	"fmt"
	"iter"
	"net/http"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready bool `json:"ready"`
	// Problems holds what makes it unready, and what is wrong without that.
	Problems []Problem `json:"problems"`
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	r := a.readiness()
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, r)
}

func (a *api) readiness() Readiness {
	r := Readiness{Ready: true, Problems: []Problem{}}
	r.Problems = append(r.Problems, a.Health.Check()...)
	r.Problems = append(r.Problems, a.partitionProblems()...)
	for _, p := range r.Problems {
		if p.Unready {
			r.Ready = false
		}
	}
	return r
}

// owned lists the partitions that the cluster has given to this broker. After a start it takes a moment until they are
// taken up, and until then the broker knows some of them as closed and some not at all.
func (a *api) owned() iter.Seq[frame.PartitionID] {
	return func(yield func(frame.PartitionID) bool) {
		img := a.Cluster.Image()
		for id, as := range img.Assignments() {
			if as.Owner != a.BrokerID || as.State == cluster.Unassigned || as.State == cluster.Deleted || as.State == cluster.Failed {
				continue
			}
			if t := img.TopicByID(id.Topic); t == nil || t.Deleting {
				continue
			}
			if !yield(id) {
				return
			}
		}
	}
}

// partitionProblems sums up partitions that don't serve. A failed partition is
// a problem but no reason to send the clients of all others away.
func (a *api) partitionProblems() []Problem {
	if a.Partitions == nil {
		return nil
	}
	var opening, failed int
	var first partition.Stats
	states := map[frame.PartitionID]partition.State{}
	a.Partitions.Stats(func(s partition.Stats) bool {
		states[s.ID] = s.State
		switch s.State {
		case partition.Starting, partition.Recovering:
			opening++
		case partition.Failed:
			if failed == 0 || less(s.ID, first.ID) {
				first = s
			}
			failed++
		case partition.Closed, partition.Writing, partition.Draining:
		}
		return true
	})
	total := len(states)
	for id := range a.owned() {
		state, known := states[id]
		if !known {
			total++
		}
		if state == partition.Closed {
			opening++
		}
	}
	var problems []Problem
	if opening > 0 {
		problems = append(problems, Problem{Component: "partitions", Unready: true,
			Message: fmt.Sprintf("%d of %s %s", opening, count(total, "partition"), singular(opening, "are being opened"))})
	}
	if failed > 0 {
		problems = append(problems, Problem{Component: "partitions",
			Message: fmt.Sprintf("%d of %s %s, among them %s/%d: %s", failed, count(total, "partition"), singular(failed, "have failed"), first.Topic, first.ID.Partition, first.Reason)})
	}
	return problems
}
