package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Assignment is one partition of the cluster and who owns it.
type Assignment struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	State      string `json:"state"`  // unassigned, starting, recovering, writing, draining, failed, deleted
	Leader     int32  `json:"leader"` // broker that serves it, -1 while none does
	Owner      int32  `json:"owner"`  // broker it belongs to, -1 for none
	OwnerAlive bool   `json:"owner_alive"`
	Epoch      int32  `json:"epoch"`
	Durability string `json:"durability"`
	// Safe: everything acknowledged is in the bucket, so that any broker may take it over.
	Safe        bool  `json:"safe"`
	Target      int32 `json:"target"` // of a move under way, -1 for none
	TargetSince int64 `json:"target_since,omitempty"`
	Warm        bool  `json:"warm,omitempty"`
	Wished      int32 `json:"wished"` // broker that an operator wants it at, -1 for none
	Failures    int32 `json:"failures,omitempty"`
	// Problem says why it isn't served: unplaced, waiting, failing over, restarting, being opened, failed, being deleted.
	Problem string `json:"problem,omitempty"`
	Reason  string `json:"reason,omitempty"` // of its failure
}

// AssignmentPage is a part of the cluster's partitions.
type AssignmentPage struct {
	Partitions []Assignment `json:"partitions"`
	Total      int          `json:"total"` // that match
	// Next is the value for "after" that leads to the next page; "" on the last one.
	Next string `json:"next"`
}

func newAssignment(image *cluster.Image, t *cluster.Topic, id frame.PartitionID) Assignment {
	a, placed := image.Assignment(id)
	if !placed {
		a.Owner, a.Target, a.Epoch = cluster.NoBroker, cluster.NoBroker, cluster.NoEpoch
	}
	x := Assignment{
		Topic: t.Name, Partition: id.Partition, State: stateName(a.State), Leader: cluster.NoBroker, Owner: a.Owner, Epoch: a.Epoch,
		Durability: t.Config.Durability.String(), Safe: a.Safe, Target: a.Target, TargetSince: a.TargetSince, Warm: a.Warm,
		Wished: cluster.NoBroker, Failures: a.Failures, Reason: a.Reason, Problem: ailment(image, t, &a, placed),
	}
	_, x.OwnerAlive = image.Broker(a.Owner)
	if m, ok := image.Move(id); ok {
		x.Wished = m.Target
	}
	if x.Problem == "" {
		x.Leader = a.Owner
	}
	return x
}

// filter chooses partitions by a query.
type filter struct {
	topic   string
	broker  *int32
	state   string
	problem bool
	moving  bool
}

func newFilter(q url.Values) (filter, error) {
	f := filter{topic: q.Get("topic"), state: q.Get("state")}
	if text := q.Get("broker"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return f, fmt.Errorf("broker must be the id of a broker, or -1 for partitions without an owner, not %q", text)
		}
		id := int32(n)
		f.broker = &id
	}
	for name, set := range map[string]*bool{"problem": &f.problem, "moving": &f.moving} {
		if text := q.Get(name); text != "" {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return f, fmt.Errorf("%s must be true or false, not %q", name, text)
			}
			*set = on
		}
	}
	return f, nil
}

func (f *filter) match(x *Assignment) bool {
	return (f.broker == nil || x.Owner == *f.broker) && (f.state == "" || x.State == f.state) && (!f.problem || x.Problem != "") &&
		(!f.moving || x.Target != cluster.NoBroker || x.Wished != cluster.NoBroker)
}

func (a *api) assignments(w http.ResponseWriter, r *http.Request) {
	skip, limit, ok := pageOf(w, r)
	if !ok {
		return
	}
	f, err := newFilter(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	image := a.Cluster.Image()
	topics := image.Topics()
	if f.topic != "" {
		t := image.TopicByName(f.topic)
		if t == nil {
			writeError(w, http.StatusNotFound, fmt.Errorf("no topic %q", f.topic))
			return
		}
		topics = []*cluster.Topic{t}
	}
	page := AssignmentPage{Partitions: []Assignment{}}
	for _, t := range topics {
		for n := range t.Partitions {
			x := newAssignment(image, t, frame.PartitionID{Topic: t.ID, Partition: n})
			if !f.match(&x) {
				continue
			}
			if page.Total >= skip && len(page.Partitions) < limit {
				page.Partitions = append(page.Partitions, x)
			}
			page.Total++
		}
	}
	if page.Total > skip+limit {
		page.Next = strconv.Itoa(skip + limit)
	}
	writeJSON(w, http.StatusOK, page)
}

// pageOf reads "after" and "limit"; it answers itself and returns false when they are no numbers.
func pageOf(w http.ResponseWriter, r *http.Request) (skip, limit int, ok bool) {
	query := r.URL.Query()
	limit = defaultPartitions
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPartitions {
			writeError(w, http.StatusBadRequest, fmt.Errorf("limit must be a number from 1 to %d", maxPartitions))
			return 0, 0, false
		}
		limit = n
	}
	if text := query.Get("after"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 1<<30 {
			writeError(w, http.StatusBadRequest, fmt.Errorf("after must be the \"next\" of an earlier page"))
			return 0, 0, false
		}
		skip = n
	}
	return skip, limit, true
}
