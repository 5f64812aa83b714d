package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/admin"
)

// adminStub answers requests from a table and notes them.
type adminStub struct {
	mu      sync.Mutex
	answers map[string][]any // by method and path; the last one stays
	seen    []string
	hook    func(key string, times int) // called for each request, the lock held
}

func (s *adminStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	s.seen = append(s.seen, key)
	if s.hook != nil {
		s.hook(key, s.count(key))
	}
	list := s.answers[key]
	if len(list) == 0 {
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"error":"not now: do this instead"}`))
		return
	}
	if len(list) > 1 {
		s.answers[key] = list[1:]
	}
	_ = json.NewEncoder(w).Encode(list[0])
}

func (s *adminStub) asked(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(key)
}

func (s *adminStub) count(key string) int {
	n := 0
	for _, k := range s.seen {
		if k == key {
			n++
		}
	}
	return n
}

// tool runs tierctl against the stub.
func (s *adminStub) tool(t *testing.T, ctx context.Context, args ...string) (out, errOut string, err error) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Setenv("TIERCTL_CONTEXTS", t.TempDir()+"/none")
	root := newRoot()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	// The first address answers nobody.
	root.SetArgs(append(args, "--admin", "http://127.0.0.1:1, "+server.URL+"/"))
	err = root.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}

func TestClusterStatusCommand(t *testing.T) {
	status := admin.ClusterStatus{OK: true, Level: "info", ClusterID: "c-1", Controller: 101, Brokers: []admin.BrokerInfo{{ID: 1, Alive: true, Status: "alive", Host: "h", Port: 1}},
		Problems: []admin.ClusterProblem{{Severity: "info", Component: "brokers", Message: "broker 1 is drained", Action: "Stop it."}}}
	s := &adminStub{answers: map[string][]any{"GET /api/v1/cluster/status": {status}}}
	out, _, err := s.tool(t, t.Context(), "cluster", "status")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, "all is well: c-1\n"), out)
	require.Contains(t, out, "-> Stop it.")

	bad := status
	bad.OK, bad.Level, bad.Controller = false, "critical", -1
	s.answers["GET /api/v1/cluster/status"] = []any{bad}
	out, _, err = s.tool(t, t.Context(), "cluster", "status")
	require.ErrorIs(t, err, errProblems)
	require.Contains(t, out, "something is wrong: c-1")
	require.Contains(t, out, "controller  none")
	out, _, err = s.tool(t, t.Context(), "cluster", "status", "-o", "json")
	require.ErrorIs(t, err, errProblems)
	require.True(t, json.Valid([]byte(out)))

	s.answers["GET /api/v1/cluster/status"] = []any{bad, bad, status}
	_, _, err = s.tool(t, t.Context(), "cluster", "status", "--wait", "30s")
	require.NoError(t, err)
}

func TestDrainCommand(t *testing.T) {
	broker := func(partitions int, status string) admin.BrokerDetail {
		return admin.BrokerDetail{BrokerInfo: admin.BrokerInfo{ID: 3, Alive: true, Status: status, Partitions: partitions, Wish: &admin.WishInfo{Draining: true}}}
	}
	s := &adminStub{answers: map[string][]any{"POST /api/v1/brokers/3/drain": {broker(2, "draining")}, "GET /api/v1/brokers/3": {broker(2, "draining"), broker(1, "draining"), broker(0, "drained")}}}
	out, _, err := s.tool(t, t.Context(), "broker", "drain", "3")
	require.NoError(t, err)
	require.Contains(t, out, "broker 3 is drained")
	require.Equal(t, 3, s.asked("GET /api/v1/brokers/3"))

	// It dies with the only copy: no endless wait.
	dead := broker(1, "dead")
	dead.Alive, dead.OnlyHere = false, 1
	s.answers["GET /api/v1/brokers/3"] = []any{dead}
	_, _, err = s.tool(t, t.Context(), "broker", "drain", "3")
	require.ErrorContains(t, err, "start it again")
	_, _, err = s.tool(t, t.Context(), "broker", "remove", "3", "--yes")
	require.ErrorContains(t, err, "force-move")

	// Somebody takes it back meanwhile.
	back := broker(1, "alive")
	back.Wish = nil
	s.answers["GET /api/v1/brokers/3"] = []any{back}
	_, _, err = s.tool(t, t.Context(), "broker", "drain", "3")
	require.ErrorContains(t, err, "taken it back")

	// Ctrl-C ends the waiting, and says that the drain goes on.
	s.answers["GET /api/v1/brokers/3"] = []any{broker(1, "draining")}
	ctx, cancel := context.WithCancel(t.Context())
	before := s.asked("GET /api/v1/brokers/3")
	s.hook = func(key string, times int) {
		if key == "GET /api/v1/brokers/3" && times == before+2 {
			cancel()
		}
	}
	_, told, err := s.tool(t, ctx, "broker", "drain", "3")
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, told, "goes on being emptied")

	_, _, err = s.tool(t, t.Context(), "broker", "drain", "4")
	require.EqualError(t, err, "drain broker 4: not now: do this instead")
	_, _, err = s.tool(t, t.Context(), "broker", "drain", "x")
	require.ErrorAs(t, err, new(usageError))
}

func TestForceMoveCommand(t *testing.T) {
	l := admin.LossInfo{Assignment: admin.Assignment{Topic: "a", Partition: 3, Owner: 5, Durability: "sync", Problem: "waiting"}, Loses: true, Why: "broker 5 is dead",
		HeadKnown: true, BucketEnd: 1000, Records: 1000, BucketTime: -1, Ceiling: 9000, OwnerEnd: -1}
	s := &adminStub{answers: map[string][]any{"GET /api/v1/assignments/a/3/loss": {l}, "POST /api/v1/moves": {admin.MoveResult{Set: 1}},
		"GET /api/v1/moves": {map[string]any{"moves": []admin.MoveInfo{}}}, "GET /api/v1/assignments": {admin.AssignmentPage{Partitions: []admin.Assignment{{Topic: "a", Partition: 3, Owner: 2}}}}}}
	out, told, err := s.tool(t, t.Context(), "partition", "force-move", "a", "3", "--to", "2", "--yes")
	require.NoError(t, err)
	require.Contains(t, out, "1 partition at broker 2")
	for _, text := range []string{"offsets 0 up to 1000", "from offset 1000 on", "less than 8000 offsets", "offset 9000, the ceiling"} {
		require.Contains(t, strings.Join(strings.Fields(told), " "), text)
	}
	l.OwnerEnd = 1200
	s.answers["GET /api/v1/assignments/a/3/loss"] = []any{l}
	_, told, err = s.tool(t, t.Context(), "partition", "force-move", "a", "3", "--to", "2", "--yes")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(told), " "), "offsets 1000 up to 1200, 200 of them")

	before := s.asked("POST /api/v1/moves")
	_, _, err = s.tool(t, t.Context(), "partition", "force-move", "a", "3", "--to", "2") // no terminal, nobody to ask
	require.ErrorAs(t, err, new(usageError))
	l.Loses, l.Why = false, "broker 5 serves it"
	s.answers["GET /api/v1/assignments/a/3/loss"] = []any{l}
	_, _, err = s.tool(t, t.Context(), "partition", "force-move", "a", "3", "--to", "2", "--yes")
	require.ErrorContains(t, err, "needs no force")
	require.Equal(t, before, s.asked("POST /api/v1/moves"))
}

func TestRebalanceApplyStops(t *testing.T) {
	plan := admin.RebalancePlan{Moves: []admin.PlannedMove{{Topic: "a", Partition: 0, To: 2}, {Topic: "a", Partition: 1, To: 2}}}
	moving := map[string]any{"moves": []admin.MoveInfo{{Topic: "a", Partition: 0, To: 2, State: "waiting"}}}
	s := &adminStub{answers: map[string][]any{"GET /api/v1/rebalance/plan": {plan}, "GET /api/v1/rebalance": {admin.RebalanceStatus{MovesMax: 40}},
		"POST /api/v1/moves": {admin.MoveResult{Set: 1}}, "GET /api/v1/moves": {moving}, "POST /api/v1/moves/cancel": {admin.CancelResult{Canceled: 1}}}}
	ctx, cancel := context.WithCancel(t.Context())
	s.hook = func(key string, times int) {
		if key == "GET /api/v1/moves" && times == 2 {
			cancel()
		}
	}
	_, told, err := s.tool(t, ctx, "rebalance", "apply", "--yes", "--concurrency", "1")
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	require.Contains(t, told, "stopped: 0 of 2 moves made, 1 taken back")
	require.Equal(t, 1, s.asked("POST /api/v1/moves"), "no more than one at a time")
	require.Equal(t, 1, s.asked("POST /api/v1/moves/cancel"))

	// The controller gives one up: that is told.
	s.answers["GET /api/v1/moves"] = []any{map[string]any{"moves": []admin.MoveInfo{}}}
	s.answers["GET /api/v1/assignments"] = []any{admin.AssignmentPage{Partitions: []admin.Assignment{{Topic: "a", Partition: 0, Owner: 2}, {Topic: "a", Partition: 1, Owner: 1}}}}
	_, _, err = s.tool(t, t.Context(), "rebalance", "apply", "--yes")
	require.ErrorContains(t, err, "1 of 2 moves came to nothing, among them a/1, which is at broker 1")
}
