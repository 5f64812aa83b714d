package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// several is a cluster of the brokers 1 to 3, as node 1 sees it; the test is its controller.
type several struct {
	t        *testing.T
	h        http.Handler
	w        *world
	client   *cluster.Client
	term     *cluster.Term
	sessions map[int32]*cluster.Session
	ports    map[int32]net.Listener // Kafka's; nobody speaks behind them
	now      int64
}

func newSeveral(t *testing.T, change func(*Options)) *several {
	s := &several{t: t, sessions: map[int32]*cluster.Session{}, ports: map[int32]net.Listener{}, now: testNow}
	s.w, s.h, _ = setup(t, func(o *Options) {
		s.client = o.Cluster.(*cluster.Client)
		o.Now = func() int64 { return s.now }
		if change != nil {
			change(o)
		}
	})
	for id := int32(1); id <= 3; id++ {
		s.register(id, "")
	}
	var err error
	s.term, err = s.client.Campaign(t.Context(), s.sessions[1], 1)
	require.NoError(t, err)
	for n := int32(0); n < 3; n++ {
		s.assign("logs", n, s.serving(n+1, false))
	}
	s.assign("other", 0, s.serving(3, true))
	return s
}

func (s *several) register(id int32, url string) {
	if s.ports[id] == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(s.t, err)
		s.t.Cleanup(func() {
			if err := l.Close(); !errors.Is(err, net.ErrClosed) { // a test may have closed it
				require.NoError(s.t, err)
			}
		})
		s.ports[id] = l
	}
	port := int32(s.ports[id].Addr().(*net.TCPAddr).Port)
	session, err := s.client.Register(s.t.Context(), cluster.Broker{ID: id, Incarnation: fmt.Sprint("run-", id), Identity: fmt.Sprint(id), Host: "127.0.0.1", Port: port,
		AdminURL: url, Rack: "r", StartedAt: testNow - 1000}, time.Minute)
	require.NoError(s.t, err)
	s.sessions[id] = session
	s.t.Cleanup(func() { require.NoError(s.t, session.Close()) })
}

func (s *several) kill(id int32) {
	require.NoError(s.t, s.sessions[id].Close())
	s.await(func(img *cluster.Image) bool { _, alive := img.Broker(id); return !alive })
}

func (s *several) await(ok func(*cluster.Image) bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	img := s.client.Image()
	for !ok(img) {
		next, err := s.client.Wait(ctx, img.Revision())
		require.NoError(s.t, err)
		img = next
	}
}

func (s *several) serving(owner int32, safe bool) cluster.Assignment {
	return cluster.Assignment{Owner: owner, OwnerIncarnation: fmt.Sprint("run-", owner), Epoch: 3, State: cluster.Writing, Target: cluster.NoBroker, Safe: safe}
}

func (s *several) id(topic string, n int32) frame.PartitionID {
	return frame.PartitionID{Topic: s.client.Image().TopicByName(topic).ID, Partition: n}
}

func (s *several) assign(topic string, n int32, a cluster.Assignment) {
	s.t.Helper()
	id := s.id(topic, n)
	old, had := s.client.Image().Assignment(id)
	require.NoError(s.t, s.term.Apply(s.t.Context(), []cluster.Change{{ID: id, Exists: had, Old: old, New: a}}))
}

func (s *several) post(path, body string, status int) string {
	s.t.Helper()
	w := post(s.h, path, body, nil)
	require.Equal(s.t, status, w.Code, "%s: %s", path, w.Body)
	return w.Body.String()
}

func (s *several) status() ClusterStatus {
	s.t.Helper()
	return decode[ClusterStatus](s.t, get(s.t, s.h, "/api/v1/cluster/status", 200))
}

// problem returns the one problem whose message contains a text.
func (s *several) problem(text string) ClusterProblem {
	s.t.Helper()
	st := s.status()
	for _, p := range st.Problems {
		if strings.Contains(p.Message, text) {
			return p
		}
	}
	s.t.Fatalf("no problem says %q: %+v", text, st.Problems)
	return ClusterProblem{}
}

func TestBrokers(t *testing.T) {
	s := newSeveral(t, nil)
	list := decode[struct{ Brokers []BrokerInfo }](t, get(t, s.h, "/api/v1/brokers", 200)).Brokers
	require.Len(t, list, 3)
	b := list[2]
	require.Equal(t, []any{int32(3), "alive", true, 2, 2, 1}, []any{b.ID, b.Status, b.Alive, b.Partitions, b.Serving, b.OnlyHere})
	require.True(t, list[0].Controller)

	s.kill(3)
	d := decode[BrokerDetail](t, get(t, s.h, "/api/v1/brokers/3", 200))
	require.Equal(t, []any{"dead", 2, 0}, []any{d.Status, d.Partitions, d.Serving})
	require.Equal(t, []BrokerTopic{{"logs", 1, 1}, {"other", 1, 0}}, d.Topics)
	require.Contains(t, get(t, s.h, "/api/v1/brokers/9", 404), "there is no broker 9")
	get(t, s.h, "/api/v1/brokers/x", 400)
}

func TestDrain(t *testing.T) {
	s := newSeveral(t, nil)
	d := decode[BrokerDetail](t, s.post("/api/v1/brokers/2/drain", `{"why":"new disk"}`, 200))
	require.Equal(t, "draining", d.Status)
	require.Equal(t, "new disk", d.Wish.Why)
	require.Equal(t, "info", s.problem("broker 2 is being drained; 1 partition left").Severity)
	require.True(t, s.client.Image().BrokerWishes()[2].Draining)
	s.assign("logs", 1, cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 5, State: cluster.Writing, Target: cluster.NoBroker})
	require.Equal(t, "drained", decode[BrokerDetail](t, get(t, s.h, "/api/v1/brokers/2", 200)).Status)

	s.post("/api/v1/brokers/3/drain", "", 200)
	require.Contains(t, s.post("/api/v1/brokers/1/drain", "", 409), "no other broker could take")
	require.Contains(t, s.post("/api/v1/brokers/1/remove", "", 409), "no other broker could take")
	require.Equal(t, "alive", decode[BrokerDetail](t, s.post("/api/v1/brokers/3/undrain", "", 200)).Status)
	s.post("/api/v1/brokers/3/undrain", "", 200) // once more
	require.Equal(t, "removed", decode[BrokerDetail](t, s.post("/api/v1/brokers/2/remove", "{}", 200)).Status)
	require.Contains(t, s.problem("broker 2 is removed").Action, "Stop its process")
	require.True(t, s.status().OK)
	s.post("/api/v1/brokers/2/drain", `{"whi":1}`, 400)
	s.post("/api/v1/brokers/8/drain", "", 404)
	s.kill(2)
	require.Contains(t, s.post("/api/v1/brokers/2/drain", "", 409), "is dead")
}

func TestAssignments(t *testing.T) {
	s := newSeveral(t, nil)
	page := func(query string) AssignmentPage {
		return decode[AssignmentPage](t, get(t, s.h, "/api/v1/assignments?"+query, 200))
	}
	all := page("")
	require.Equal(t, 4, all.Total)
	require.Equal(t, Assignment{Topic: "logs", Partition: 1, State: "writing", Leader: 2, Owner: 2, OwnerAlive: true, Epoch: 3, Durability: "sync", Target: -1, Wished: -1}, all.Partitions[1])
	s.kill(3)
	require.Equal(t, 2, page("problem=true").Total)
	require.Equal(t, 2, page("broker=3").Total)
	require.Equal(t, 1, page("broker=3&topic=logs").Total)
	require.Equal(t, 0, page("state=failed").Total)
	waiting := page("topic=logs&problem=1").Partitions[0]
	require.Equal(t, []any{"waiting", int32(-1), false}, []any{waiting.Problem, waiting.Leader, waiting.OwnerAlive})
	require.Equal(t, "failing over", page("topic=other").Partitions[0].Problem)
	first := page("limit=3")
	require.Len(t, first.Partitions, 3)
	require.Len(t, page("limit=3&after="+first.Next).Partitions, 1)
	require.Empty(t, page("limit=3&after="+first.Next).Next)
	for _, bad := range []string{"broker=x", "limit=0", "after=-1", "problem=maybe"} {
		get(t, s.h, "/api/v1/assignments?"+bad, 400)
	}
	get(t, s.h, "/api/v1/assignments?topic=none", 404)
}

func TestMoves(t *testing.T) {
	s := newSeveral(t, nil)
	list := func() []MoveInfo {
		return decode[struct{ Moves []MoveInfo }](t, get(t, s.h, "/api/v1/moves", 200)).Moves
	}
	require.Empty(t, list())
	r := decode[MoveResult](t, s.post("/api/v1/moves", `{"moves":[{"topic":"logs","partition":0,"to":2,"goal":"rebalance: why not"},{"topic":"logs","partition":1,"to":2}]}`, 200))
	require.Equal(t, MoveResult{Set: 1, There: 1}, r)
	s.now = s.client.Image().Moves()[0].Since + 500
	m := list()[0]
	require.Equal(t, []any{"logs", int32(0), int32(1), int32(2), "waiting", "its turn", int64(500)}, []any{m.Topic, m.Partition, m.From, m.To, m.State, m.Waits, m.AgeMs})

	// The controller begins it; it is not done for long.
	moving := s.serving(1, false)
	moving.Target, moving.TargetSince = 2, s.now
	s.assign("logs", 0, moving)
	require.Equal(t, "warming", list()[0].State)
	require.Equal(t, "info", s.problem("1 move under way").Severity)
	s.now += stuckAfter + 1
	require.Equal(t, "stuck", list()[0].State)
	require.Equal(t, "warning", s.problem("1 move under way for more than 30 s, among them logs/0 from broker 1 to 2").Severity)
	require.False(t, s.status().OK)

	there := s.serving(2, false)
	there.Epoch, there.State = 4, cluster.Starting
	s.assign("logs", 0, there)
	require.Equal(t, "opening", list()[0].State)
	there.State = cluster.Writing
	s.assign("logs", 0, there)
	require.Empty(t, list(), "it is there, and its wish goes soon")

	require.Contains(t, s.post("/api/v1/moves", `{"moves":[{"topic":"logs","partition":0,"to":9}]}`, 409), "broker 9 is not alive")
	s.post("/api/v1/moves", `{"moves":[{"topic":"none","partition":0,"to":2}]}`, 404)
	s.post("/api/v1/moves", `{"moves":[{"topic":"logs","partition":7,"to":2}]}`, 404)
	s.post("/api/v1/moves", `{"moves":`+strings.Repeat(" ", maxBody)+`[]}`, 413)
	s.kill(3)
	require.Contains(t, s.post("/api/v1/moves", `{"moves":[{"topic":"logs","partition":2,"to":2}]}`, 409), "force-move tells what would be lost")
	require.Len(t, s.client.Image().Moves(), 1)
	s.post("/api/v1/moves", `{"moves":[{"topic":"logs","partition":2,"to":2,"force":true}]}`, 200)
	forced, _ := s.client.Image().Move(s.id("logs", 2))
	require.True(t, forced.Force)

	s.post("/api/v1/moves/cancel", `{}`, 400)
	require.Equal(t, 1, decode[CancelResult](t, s.post("/api/v1/moves/cancel", `{"all":true,"goal":"rebalance"}`, 200)).Canceled)
	require.Len(t, s.client.Image().Moves(), 1)
	require.Equal(t, 1, decode[CancelResult](t, s.post("/api/v1/moves/cancel", `{"moves":[{"topic":"logs","partition":2},{"topic":"logs","partition":1}]}`, 200)).Canceled)
	require.Empty(t, s.client.Image().Moves())
}

func TestLoss(t *testing.T) {
	var heads *tier.Archive
	s := newSeveral(t, func(o *Options) {
		heads = tier.New(tier.Options{Heads: bucket.NewMemory()})
		t.Cleanup(func() { require.NoError(t, heads.Close()) })
		o.Heads = heads
	})
	loss := func(n int32) LossInfo {
		return decode[LossInfo](t, get(t, s.h, fmt.Sprintf("/api/v1/assignments/logs/%d/loss", n), 200))
	}
	l := loss(0)
	require.False(t, l.Loses)
	require.Contains(t, l.Why, "broker 1 serves")
	h, err := heads.Claim(t.Context(), s.id("logs", 2), "logs", nil, tier.Owner{Broker: 3, Incarnation: "run-3", Epoch: 3})
	require.NoError(t, err)
	s.kill(3)
	l = loss(2)
	require.True(t, l.Loses)
	require.True(t, l.HeadKnown)
	require.Equal(t, []int64{0, 0, h.Ceiling, -1, -1}, []int64{l.Start, l.BucketEnd, l.Ceiling, l.OwnerEnd, l.BucketTime})
	// One that failed at a living owner: the owner is asked what it has confirmed.
	failed := s.serving(1, false)
	failed.State, failed.Failures, failed.FailedAt, failed.Epoch, failed.Reason = cluster.Failed, 1, 1, 3, "disk"
	s.assign("logs", 0, failed)
	l = loss(0)
	require.True(t, l.Loses)
	require.EqualValues(t, 25, l.OwnerEnd)
	require.Equal(t, "disk", l.Reason)
	get(t, s.h, "/api/v1/assignments/logs/9/loss", 404)
	get(t, s.h, "/api/v1/assignments/logs/x/loss", 400)
}

func TestStatus(t *testing.T) {
	s := newSeveral(t, nil)
	st := s.status()
	require.True(t, st.OK, "%+v", st.Problems)
	require.Equal(t, 4, st.Partitions.Served)
	for _, p := range st.Problems { // 2 and 3 have told no admin address
		require.Equal(t, "info", p.Severity)
	}
	s.w.problems = []Problem{{Component: "bucket", Message: "no request has succeeded for 20s"}, {Component: "commitlog", Message: "full", Unready: true}}
	require.Equal(t, "warning", s.problem("broker 1: no request has succeeded").Severity)
	require.Equal(t, "critical", s.problem("broker 1: full").Severity)
	s.w.problems = nil

	s.kill(3)
	st = s.status()
	require.False(t, st.OK)
	require.Equal(t, "critical", st.Level)
	require.Equal(t, 2, st.Partitions.Served)
	p := s.problem("broker 3 is dead and 1 partition waits for it")
	require.Contains(t, p.Action, "Start broker 3 again")
	require.Equal(t, "warning", s.problem("taken over from a dead broker (other/0)").Severity)

	failed := s.serving(1, false)
	failed.State, failed.Failures, failed.FailedAt, failed.Reason = cluster.Failed, 1, 1, "disk"
	s.assign("logs", 0, failed)
	require.Equal(t, "critical", s.problem("1 partition can't be served by the owner, which tries again with pauses (logs/0: disk)").Severity)
	require.NoError(t, s.term.Resign(t.Context()))
	s.await(func(img *cluster.Image) bool { return img.ControllerID() == cluster.NoBroker })
	require.Equal(t, "critical", s.problem("no controller leads").Severity)
}

// TestAskOthers: what another node says about itself is in the status, and an address at which a third one answers is told.
func TestAskOthers(t *testing.T) {
	s := newSeveral(t, nil)
	var answer string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { send(w, []byte(answer)) }))
	t.Cleanup(other.Close)
	s.kill(2)
	s.register(2, other.URL)
	s.await(func(img *cluster.Image) bool { b, _ := img.Broker(2); return b.AdminURL != "" })
	answer = fmt.Sprintf(`{"broker_id": 2, "cluster_id": %q, "health": {"ready": false, "problems": [{"component":"commitlog","message":"disk full","unready":true}]}}`, s.client.Image().ClusterID())
	require.Equal(t, "critical", s.problem("broker 2: disk full").Severity)
	answer = `{"broker_id": 3}`
	require.Contains(t, s.problem("broker 2 lives and its admin API could not be asked").Message, "node 3")
	answer = "{"
	require.Equal(t, "info", s.problem("broker 2 lives and its admin API could not be asked").Severity)

	// No port of it takes connections: it has most likely ended, and its lease lives on.
	require.NoError(t, s.ports[2].Close())
	p := s.problem("broker 2 is not answering")
	require.Equal(t, "warning", p.Severity)
	require.Contains(t, p.Action, "start it again")
	st := s.status()
	require.False(t, st.OK)
	require.Equal(t, []any{"not answering", true, false}, []any{st.Brokers[1].Status, st.Brokers[1].Alive, st.Brokers[1].Answers})
	require.Equal(t, []any{0, 1, 4, 3}, []any{st.Brokers[1].Serving, st.Brokers[1].Partitions, st.Partitions.Total, st.Partitions.Served}, "it owns one and serves none")
}

type fixedLoads controller.Loads

func (l fixedLoads) Loads(context.Context) (controller.Loads, error) { return controller.Loads(l), nil }

func TestRebalance(t *testing.T) {
	loads := fixedLoads{}
	s := newSeveral(t, func(o *Options) { o.Loads = loads })
	for n := range int32(3) {
		s.assign("logs", n, cluster.Assignment{Owner: 3, OwnerIncarnation: "run-3", Epoch: 4, State: cluster.Writing, Target: cluster.NoBroker})
	}
	p := decode[RebalancePlan](t, get(t, s.h, "/api/v1/rebalance/plan?goal=partitions", 200))
	require.Equal(t, []string{"partitions"}, p.Goals)
	require.True(t, p.LoadsKnown)
	_, err := (&api{}).knownLoads(t.Context())
	require.ErrorIs(t, err, errNoLoads)
	require.Len(t, p.Moves, 2)
	require.Equal(t, []int{0, 0, 4}, []int{p.Before[0].Partitions, p.Before[1].Partitions, p.Before[2].Partitions})
	require.Equal(t, []int{1, 1, 2}, []int{p.After[0].Partitions, p.After[1].Partitions, p.After[2].Partitions})
	require.Empty(t, s.client.Image().Moves(), "a plan changes nothing")
	loads[s.id("logs", 0)] = controller.Load{In: 1000}
	require.True(t, decode[RebalancePlan](t, get(t, s.h, "/api/v1/rebalance/plan", 200)).LoadsKnown)
	get(t, s.h, "/api/v1/rebalance/plan?goal=beauty", 400)
	get(t, s.h, "/api/v1/rebalance/plan?tolerance=2", 400)

	require.Len(t, decode[RebalancePlan](t, s.post("/api/v1/rebalance/apply", `{"goals":["partitions"],"limit":1}`, 200)).Moves, 1)
	require.Len(t, s.client.Image().Moves(), 1)
	s.post("/api/v1/moves", `{"moves":[{"topic":"other","partition":0,"to":1,"goal":"mine"}]}`, 200)
	st := decode[RebalanceStatus](t, get(t, s.h, "/api/v1/rebalance", 200))
	require.Equal(t, []int{0, 1}, []int{st.UnderWay, st.Waiting})
	require.Equal(t, 1, decode[CancelResult](t, s.post("/api/v1/rebalance/stop", "", 200)).Canceled)
	require.Len(t, s.client.Image().Moves(), 1, "what an operator wished stays")

	require.False(t, decode[RebalanceStatus](t, s.post("/api/v1/rebalance/auto", `{"on":false,"threshold_percent":35}`, 200)).Auto)
	set := s.client.Image().MoveSettings()
	require.Equal(t, []any{false, 35}, []any{set.Auto, set.Threshold})
	s.post("/api/v1/rebalance/auto", `{}`, 400)
	s.post("/api/v1/rebalance/auto", `{"threshold_percent":-1}`, 409)
	s.post("/api/v1/rebalance/apply", `{"goals":["beauty"]}`, 400)
}

type fixedNode struct{}

func (fixedNode) Lease() (LeaseInfo, bool) {
	return LeaseInfo{Valid: 7 * time.Second, TTL: 10 * time.Second, Since: testNow - 60_000}, true
}
func (fixedNode) Controller() (controller.Stats, bool) {
	return controller.Stats{Leading: true, Terms: 2, Moves: 3, MoveTime: 1500 * time.Millisecond, Changes: map[controller.Kind]int64{controller.Failover: 5}}, true
}
func (fixedNode) Stream() (partition.StreamStats, bool) {
	return partition.StreamStats{Stats: wal.Stats{Next: 12, Acked: 10, InFlight: 2, Retries: 4}, QueuedBytes: 99}, true
}

func TestClusterMetrics(t *testing.T) {
	s := newSeveral(t, func(o *Options) { o.Node = fixedNode{} })
	s.kill(3)
	text := get(t, s.h, "/metrics", 200)
	for _, line := range []string{
		`tierbroker_cluster_partitions{state="writing"} 4`, `tierbroker_cluster_partitions{state="failed"} 0`,
		`tierbroker_cluster_partitions_unserved{problem="waiting"} 1`, `tierbroker_cluster_partitions_unserved{problem="failing over"} 1`,
		`tierbroker_topic_partitions_unserved{topic="logs"} 1`, `tierbroker_cluster_broker_partitions{broker="3"} 2`,
		`tierbroker_cluster_epochs 16`, `tierbroker_topic_epochs{topic="logs"} 12`, `tierbroker_cluster_moves{state="stuck"} 0`,
		`tierbroker_lease_valid_seconds 7`, `tierbroker_lease_age_seconds 60`, `tierbroker_controller_leading 1`,
		`tierbroker_controller_changes_total{kind="failover"} 5`, `tierbroker_controller_move_seconds_total 1.5`,
		`tierbroker_wal_objects_total 12`, `tierbroker_wal_unacknowledged_objects 2`, `tierbroker_wal_upload_retries_total 4`, `tierbroker_wal_queued_bytes 99`,
	} {
		require.Contains(t, text, line+"\n")
	}
}
