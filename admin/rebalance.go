package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/frame"
)

// Loads tells what partitions move, as brokers have reported to the leading controller.
type Loads interface {
	// Loads leaves out partitions that move nothing.
	Loads(ctx context.Context) (controller.Loads, error)
}

// loadsTime bounds the question for loads: without an answer, a plan looks at counts only.
const loadsTime = 3 * time.Second

// RebalancePlan shows what a rebalance would do.
type RebalancePlan struct {
	Goals     []string      `json:"goals"`
	Tolerance float64       `json:"tolerance"`
	Moves     []PlannedMove `json:"moves"`
	Before    []BrokerLoad  `json:"before"`
	After     []BrokerLoad  `json:"after"`
	// LoadsKnown: bytes were looked at; else LoadsError says why only labels and counts were.
	LoadsKnown bool   `json:"loads_known"`
	LoadsError string `json:"loads_error,omitempty"`
}

// PlannedMove is one move of a plan.
type PlannedMove struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      int32   `json:"from"`
	To        int32   `json:"to"`
	Goal      string  `json:"goal"` // that it serves first: labels, partitions, bytes in, bytes out
	In        float64 `json:"bytes_in"`
	Out       float64 `json:"bytes_out"` // per second
}

// BrokerLoad is what a broker has, or would have.
type BrokerLoad struct {
	Broker     int32   `json:"broker"`
	Rack       string  `json:"rack"`
	Weight     float64 `json:"weight"`
	Draining   bool    `json:"draining"`
	Partitions int     `json:"partitions"`
	In         float64 `json:"bytes_in"`
	Out        float64 `json:"bytes_out"` // per second
}

// RebalanceStatus is the answer of /api/v1/rebalance.
type RebalanceStatus struct {
	Auto         bool         `json:"auto"`
	Threshold    int          `json:"threshold_percent"`
	DelayMs      int64        `json:"delay_ms"`
	MovesMax     int          `json:"moves_max"` // at a time
	MaxPerBroker int          `json:"moves_max_per_broker"`
	TimeoutMs    int64        `json:"moves_timeout_ms"`
	UnderWay     int          `json:"under_way"` // moves of a rebalance
	Waiting      int          `json:"waiting"`
	Planned      int          `json:"planned"` // moves that a plan would add
	Brokers      []BrokerLoad `json:"brokers"`
	LoadsKnown   bool         `json:"loads_known"`
	LoadsError   string       `json:"loads_error,omitempty"`
}

// goalPrefixes begin the goals of moves that a rebalance wished.
var goalPrefixes = []string{"rebalance", "automatic rebalance"}

func ofRebalance(goal string) bool {
	return slices.ContainsFunc(goalPrefixes, func(p string) bool { return strings.HasPrefix(goal, p) })
}

// goalsOf reads goals by their names; none means all.
func goalsOf(names []string, tolerance float64) (controller.Goals, error) {
	if len(names) == 0 {
		g := controller.AllGoals()
		g.Tolerance = tolerance
		return g, nil
	}
	g := controller.Goals{Tolerance: tolerance}
	for _, name := range names {
		switch name {
		case controller.GoalLabels:
			g.Labels = true
		case controller.GoalCount:
			g.Count = true
		case controller.GoalBytesIn:
			g.BytesIn = true
		case controller.GoalBytesOut:
			g.BytesOut = true
		default:
			return g, fmt.Errorf("no goal %q: there are labels, partitions, bytes in, bytes out", name)
		}
	}
	return g, nil
}

func goalNames(g controller.Goals) []string {
	names := []string{}
	for _, x := range []struct {
		on   bool
		name string
	}{{g.Labels, controller.GoalLabels}, {g.Count, controller.GoalCount}, {g.BytesIn, controller.GoalBytesIn}, {g.BytesOut, controller.GoalBytesOut}} {
		if x.on {
			names = append(names, x.name)
		}
	}
	return names
}

var errNoLoads = errors.New("this node doesn't know what partitions move")

func (a *api) knownLoads(ctx context.Context) (controller.Loads, error) {
	if a.Loads == nil {
		return nil, errNoLoads
	}
	ctx, cancel := context.WithTimeout(ctx, loadsTime)
	defer cancel()
	return a.Loads.Loads(ctx)
}

// plan computes a rebalance.
func (a *api) plan(ctx context.Context, image *cluster.Image, goals controller.Goals) (RebalancePlan, controller.Rebalance) {
	loads, err := a.knownLoads(ctx)
	r := controller.PlanRebalance(image, loads, goals)
	p := RebalancePlan{Goals: goalNames(goals), Tolerance: goals.Tolerance, Moves: []PlannedMove{}, Before: brokerLoads(r.Before), After: brokerLoads(r.After), LoadsKnown: err == nil}
	if err != nil {
		p.LoadsError = err.Error()
	}
	for _, m := range r.Moves {
		l := loads[m.ID]
		p.Moves = append(p.Moves, PlannedMove{Topic: m.Topic, Partition: m.ID.Partition, From: m.From, To: m.To, Goal: m.Goal, In: l.In, Out: l.Out})
	}
	return p, r
}

func brokerLoads(list []controller.BrokerLoad) []BrokerLoad {
	out := make([]BrokerLoad, len(list))
	for i, b := range list {
		out[i] = BrokerLoad(b)
	}
	return out
}

func (a *api) rebalancePlan(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	tolerance := 0.0
	if text := q.Get("tolerance"); text != "" {
		var err error
		if tolerance, err = strconv.ParseFloat(text, 64); err != nil || !(tolerance >= 0 && tolerance <= 1) {
			writeError(w, http.StatusBadRequest, errors.New("tolerance must be a number from 0 to 1"))
			return
		}
	}
	goals, err := goalsOf(q["goal"], tolerance)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	p, _ := a.plan(r.Context(), a.Cluster.Image(), goals)
	writeJSON(w, http.StatusOK, p)
}

type applyRequest struct {
	Goals     []string `json:"goals"`
	Tolerance float64  `json:"tolerance"`
	// Limit bounds the moves that are asked for; 0: all of the plan.
	Limit int `json:"limit"`
}

func (a *api) rebalanceApply(w http.ResponseWriter, r *http.Request) {
	var req applyRequest
	if !readBody(w, r, &req, `{"goals": ["partitions"], "tolerance": 0.1, "limit": 100}`) {
		return
	}
	goals, err := goalsOf(req.Goals, req.Tolerance)
	if err != nil || req.Limit < 0 || !(req.Tolerance >= 0 && req.Tolerance <= 1) {
		writeError(w, http.StatusBadRequest, errors.Join(err, errors.New("limit must not be negative, and tolerance a number from 0 to 1")))
		return
	}
	p, plan := a.plan(r.Context(), a.Cluster.Image(), goals)
	if req.Limit > 0 && len(plan.Moves) > req.Limit {
		plan.Moves, p.Moves = plan.Moves[:req.Limit], p.Moves[:req.Limit]
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTime)
	defer cancel()
	if err := a.Operator.SetMoves(ctx, plan.Wishes()); err != nil {
		writeChangeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, p)
}

func (a *api) rebalanceStatus(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, a.rebalance(r.Context()))
}

func (a *api) rebalance(ctx context.Context) RebalanceStatus {
	image := a.Cluster.Image()
	set := image.MoveSettings()
	p, _ := a.plan(ctx, image, controller.AllGoals())
	s := RebalanceStatus{Auto: set.Auto, Threshold: set.Threshold, DelayMs: set.Delay, MovesMax: set.Max, MaxPerBroker: set.MaxPerBroker, TimeoutMs: set.Timeout,
		Planned: len(p.Moves), Brokers: p.Before, LoadsKnown: p.LoadsKnown, LoadsError: p.LoadsError}
	for _, m := range a.moveList(image) {
		switch {
		case !ofRebalance(m.Goal):
		case m.State == moveWaiting:
			s.Waiting++
		default:
			s.UnderWay++
		}
	}
	return s
}

// rebalanceStop takes back what a rebalance wished and has not come to yet. An automatic one begins again when it is due.
func (a *api) rebalanceStop(w http.ResponseWriter, r *http.Request) {
	if !readBody(w, r, &struct{}{}, "{}") {
		return
	}
	var ids []frame.PartitionID
	for _, m := range a.Cluster.Image().Moves() {
		if ofRebalance(m.Goal) {
			ids = append(ids, m.ID)
		}
	}
	a.cancelAll(w, r, ids)
}

type autoRequest struct {
	On *bool `json:"on"`
	// Threshold in percent, from which on the controller acts; nil leaves it.
	Threshold *int `json:"threshold_percent"`
}

func (a *api) rebalanceAuto(w http.ResponseWriter, r *http.Request) {
	var req autoRequest
	if !readBody(w, r, &req, `{"on": true, "threshold_percent": 20}`) {
		return
	}
	var ops []cluster.ConfigOp
	if req.On != nil {
		ops = append(ops, cluster.ConfigOp{Name: cluster.RebalanceAuto, Type: cluster.OpSet, Value: strconv.FormatBool(*req.On)})
	}
	if req.Threshold != nil {
		ops = append(ops, cluster.ConfigOp{Name: cluster.RebalanceThreshold, Type: cluster.OpSet, Value: strconv.Itoa(*req.Threshold)})
	}
	if len(ops) == 0 {
		writeError(w, http.StatusBadRequest, errors.New(`give "on", "threshold_percent" or both`))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTime)
	defer cancel()
	if err := a.Operator.AlterBrokerConfig(ctx, cluster.DefaultConfig, ops, false); err != nil {
		writeChangeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, a.rebalance(r.Context()))
}
