package admin

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
)

// Severities of problems of the cluster.
const (
	severityCritical = "critical" // something isn't served, or can't be kept safe
	severityWarning  = "warning"  // it will be, unless somebody acts
	severityInfo     = "info"     // under way as somebody wished
)

// ClusterProblem is something that an operator of the cluster should know.
type ClusterProblem struct {
	Severity  string `json:"severity"` // critical, warning, info
	Component string `json:"component"`
	Message   string `json:"message"` // one sentence
	// Action says what to do about it; empty when there is nothing to do.
	Action string `json:"action,omitempty"`
}

// ClusterStatus says whether all is well with the cluster, and if not what to do.
type ClusterStatus struct {
	OK         bool             `json:"ok"`    // no problem is critical or a warning
	Level      string           `json:"level"` // of the worst problem: ok, info, warning, critical
	ClusterID  string           `json:"cluster_id"`
	Answered   int32            `json:"answered_by"` // node
	Revision   int64            `json:"revision"`
	Now        int64            `json:"now"`
	Controller int32            `json:"controller_id"` // -1 when none leads
	Brokers    []BrokerInfo     `json:"brokers"`
	Topics     int              `json:"topics"`
	Partitions PartitionSummary `json:"partitions"`
	Moves      MoveSummary      `json:"moves"`
	Nodes      []NodeHealth     `json:"nodes"`
	Problems   []ClusterProblem `json:"problems"`
}

// PartitionSummary counts the cluster's partitions.
type PartitionSummary struct {
	Total  int            `json:"total"`
	Served int            `json:"served"`
	States map[string]int `json:"states"`
	// Problems counts those that aren't served, by what is the matter (as in Assignment.Problem).
	Problems map[string]int `json:"problems"`
}

// MoveSummary counts moves.
type MoveSummary struct {
	UnderWay int `json:"under_way"`
	Waiting  int `json:"waiting"`
	Stuck    int `json:"stuck"`
}

func (a *api) status(w http.ResponseWriter, r *http.Request) {
	image := a.Cluster.Image()
	s := tallyOf(image)
	st := &ClusterStatus{
		ClusterID: image.ClusterID(), Answered: a.BrokerID, Revision: image.Revision(), Now: a.Now(), Controller: image.ControllerID(),
		Brokers: brokerList(image, s), Topics: len(image.Topics()), Nodes: a.askAll(r.Context(), image),
		Partitions: PartitionSummary{Total: s.total, Served: s.total, States: s.states, Problems: s.ailments},
	}
	for _, n := range s.ailments {
		st.Partitions.Served -= n
	}
	d := diagnosis{st: st, image: image, tally: s}
	d.controller()
	d.brokers()
	st.silence()
	d.partitions()
	d.moves(a.moveList(image))
	d.state()
	d.nodes()
	st.judge()
	writeJSON(w, http.StatusOK, st)
}

// silence marks the brokers that live by their lease alone.
func (s *ClusterStatus) silence() {
	for _, n := range s.Nodes {
		for i := range s.Brokers {
			b := &s.Brokers[i]
			if b.ID == n.Node && n.Role == "broker" && b.Alive && (n.Gone || n.Slow) {
				b.Status, b.Answers = statusSilent, false
				if n.Gone {
					s.Partitions.Served -= b.Serving
					b.Serving = 0
				}
			}
		}
	}
}

// judge sums the problems up, the worst first.
func (s *ClusterStatus) judge() {
	rank := map[string]int{severityCritical: 0, severityWarning: 1, severityInfo: 2}
	slices.SortStableFunc(s.Problems, func(x, y ClusterProblem) int { return rank[x.Severity] - rank[y.Severity] })
	s.Level, s.OK = "ok", true
	if len(s.Problems) > 0 {
		s.Level = s.Problems[0].Severity
		s.OK = s.Level == severityInfo
	}
	if s.Problems == nil {
		s.Problems = []ClusterProblem{}
	}
}

// diagnosis finds the problems.
type diagnosis struct {
	st    *ClusterStatus
	image *cluster.Image
	tally *tally
}

func (d *diagnosis) tell(severity, component, action, format string, args ...any) {
	d.st.Problems = append(d.st.Problems, ClusterProblem{Severity: severity, Component: component, Message: fmt.Sprintf(format, args...), Action: action})
}

func (d *diagnosis) controller() {
	if d.st.Controller == cluster.NoBroker {
		d.tell(severityCritical, "controller", "Start a controller again (a node whose roles include \"controller\"). What is served goes on meanwhile.",
			"no controller leads: nothing fails over, nothing is moved, new topics get no owners")
	}
}

func (d *diagnosis) brokers() {
	alive, taking := 0, 0
	for i := range d.st.Brokers {
		b := &d.st.Brokers[i]
		if b.Alive && d.tally.brokers[b.ID] != nil {
			alive++
			if !b.Draining {
				taking++
			}
		}
		d.broker(b)
	}
	switch {
	case alive == 0:
		d.tell(severityCritical, "brokers", "Start a broker.", "no broker lives")
	case taking == 0:
		d.tell(severityWarning, "brokers", "Start another broker, or undrain one (tierctl broker undrain ID).",
			"every living broker is drained or stopping: new partitions and those of a dead broker go to drained ones")
	}
}

func (d *diagnosis) broker(b *BrokerInfo) {
	moves := "It goes on by itself; tierctl broker undrain " + fmt.Sprint(b.ID) + " takes it back."
	switch b.Status {
	case statusDead:
		switch {
		case b.OnlyHere > 0:
			d.tell(severityCritical, "brokers",
				fmt.Sprintf("Start broker %d again with its data directory: they serve again in seconds. If its disk is lost: "+
					"tierctl partition list --broker %d --problem, then tierctl partition force-move tells what each would lose.", b.ID, b.ID),
				"broker %d is dead and %s, whose last records its disk may hold the only copy of", b.ID, wait(b.OnlyHere))
		case b.Partitions > 0:
			d.tell(severityWarning, "brokers", "", "broker %d is dead; other brokers take over its %s", b.ID, count(b.Partitions, "partition"))
		}
	case statusStopping:
		d.tell(severityInfo, "brokers", "", "broker %d is stopping; %s left to be moved away", b.ID, count(b.Partitions, "partition"))
	case statusDraining:
		d.tell(severityInfo, "brokers", moves, "broker %d is being drained; %s left", b.ID, count(b.Partitions, "partition"))
	case statusDrained:
		d.tell(severityInfo, "brokers", fmt.Sprintf("Stop it for its maintenance, or give it work again: tierctl broker undrain %d.", b.ID), "broker %d is drained", b.ID)
	case statusRemoving:
		d.tell(severityInfo, "brokers", moves, "broker %d is being removed; %s left", b.ID, count(b.Partitions, "partition"))
	case statusRemoved:
		if b.Alive {
			d.tell(severityInfo, "brokers", "Stop its process: it is refused when it registers again.", "broker %d is removed and owns nothing, but its process still runs", b.ID)
		}
	}
}

// partitions tells of partitions without a leader whose broker isn't told of already.
func (d *diagnosis) partitions() {
	for _, x := range []struct{ ail, severity, message, action string }{
		{ailFailed, severityCritical, "can't be served by the owner, which tries again with pauses", "tierctl partition list --problem shows the reasons; the broker's log has more."},
		{ailUnplaced, severityWarning, "have no owner yet", "The controller places them when a broker lives; look at its log if they stay."},
		{ailFailover, severityWarning, "are being taken over from a dead broker", ""},
		{ailRestarting, severityWarning, "wait for the controller to start them at their restarted broker", ""},
		{ailOpening, severityWarning, "are being opened by their broker", "It takes seconds; if they stay, the broker's log says why."},
	} {
		n := d.tally.ailments[x.ail]
		if n == 0 || x.ail == ailUnplaced && d.st.Controller == cluster.NoBroker {
			continue
		}
		d.tell(x.severity, "partitions", x.action, "%s %s (%s)", count(n, "partition"), singular(n, x.message), d.some(x.ail, n))
	}
}

// some names a few partitions with an ailment.
func (d *diagnosis) some(ail string, n int) string {
	text := ""
	for i, p := range d.tally.examples[ail] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s/%d", p.topic.Name, p.id.Partition)
		if ail == ailFailed && p.a.Reason != "" {
			text += ": " + p.a.Reason
		}
	}
	if n > maxExamples {
		text += ", ..."
	}
	return text
}

func (d *diagnosis) moves(list []MoveInfo) {
	m := &d.st.Moves
	blocked := ""
	for i := range list {
		switch x := &list[i]; x.State {
		case moveWaiting:
			m.Waiting++
			if x.Waits != "its turn" && blocked == "" {
				blocked = fmt.Sprintf("%s/%d to broker %d: %s", x.Topic, x.Partition, x.To, x.Waits)
			}
		case moveStuck:
			m.UnderWay++
			m.Stuck++
		default:
			m.UnderWay++
		}
	}
	if m.Stuck > 0 {
		x := list[0]
		d.tell(severityWarning, "moves", "It is given up and tried again after tierbroker.moves.timeout.ms. Look at the log of its owner: mostly the bucket takes no data. tierctl partition cancel takes moves back.",
			"%s under way for more than %d s, among them %s/%d from broker %d to %d", count(m.Stuck, "move"), stuckAfter/1000, x.Topic, x.Partition, x.From, x.To)
	}
	if blocked != "" {
		d.tell(severityWarning, "moves", "tierctl partition moves lists them; tierctl partition cancel takes them back.", "a move waits: %s", blocked)
	}
	if n := m.UnderWay + m.Waiting; n > 0 && m.Stuck == 0 && blocked == "" {
		d.tell(severityInfo, "moves", "", "%s under way, %d waiting", count(m.UnderWay, "move"), m.Waiting)
	}
}

// state tells what is wrong with the cluster's state in etcd.
func (d *diagnosis) state() {
	if list := d.image.Corrupt(); len(list) > 0 {
		d.tell(severityCritical, "etcd", "Restore the key, or delete it if nothing needs it; what it held before stays in force until then.",
			"%s in etcd can't be understood, among them %s: %s", count(len(list), "key"), list[0].Key, list[0].Hint)
	}
}

// nodes tells what the nodes say about themselves.
func (d *diagnosis) nodes() {
	for i := range d.st.Nodes {
		n := &d.st.Nodes[i]
		if n.Slow {
			d.tell(severityWarning, "node", "It may be paused, overloaded or cut off: look at it. When its lease ends, others take its place by themselves.",
				"%s %d is not answering: it did not within %s", n.Role, n.Node, askTime)
			continue
		}
		if n.Gone {
			d.gone(n)
			continue
		}
		if !n.Answered {
			d.tell(severityInfo, "node", "It serves, but this node can't ask it how it is: admin-listen must be an address that the other nodes reach.",
				"%s %d lives and its admin API could not be asked: %s", n.Role, n.Node, n.Error)
			continue
		}
		for _, p := range n.Problems {
			if p.Component == "partitions" {
				continue // told of already, for the whole cluster
			}
			severity := severityWarning
			if p.Unready {
				severity = severityCritical
			}
			d.tell(severity, p.Component, actionOf(p.Component), "%s %d: %s", n.Role, n.Node, p.Message)
		}
	}
}

// gone tells of a node that takes no connections. One that shuts down closes its ports shortly before it leaves.
func (d *diagnosis) gone(n *NodeHealth) {
	if b, ok := d.image.Broker(n.Node); ok && b.Draining && n.Role == "broker" {
		return // told of as stopping
	}
	d.tell(severityWarning, "node", "If its process has ended, start it again with its data directory; else look at the network to it. "+
		"It counts as dead when its lease ends, which takes seconds: then others take its place as far as they can, and this says what is left to do.",
		"%s %d is not answering: it takes no connections", n.Role, n.Node)
}

func actionOf(component string) string {
	switch component {
	case "bucket":
		return "Look after the store: its address, credentials and space. Nothing is lost meanwhile, and uploads go on by themselves."
	case "commitlog":
		return "Free space on the node's disk, or see why the bucket takes no data: tierctl topic list shows the roll lag."
	case "etcd", "cluster":
		return "Look after the controllers (or the etcd cluster) and the network to them. What this tells may be old."
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func wait(n int) string {
	if n == 1 {
		return "1 partition waits for it"
	}
	return fmt.Sprintf("%d partitions wait for it", n)
}

// singular makes the verb at the beginning of a text fit one.
func singular(n int, text string) string {
	if n != 1 {
		return text
	}
	for many, one := range map[string]string{"have ": "has ", "are ": "is ", "wait ": "waits "} {
		if len(text) > len(many) && text[:len(many)] == many {
			return one + text[len(many):]
		}
	}
	return text
}
