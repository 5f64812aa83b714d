package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/tierbroker/tierbroker/cluster"
)

// What a broker is doing, as BrokerInfo.Status says it.
const (
	statusAlive    = "alive"
	statusStopping = "stopping" // it shuts down and its partitions are moved away first
	statusDraining = "draining" // an operator wants it empty
	statusDrained  = "drained"  // and it is
	statusRemoving = "removing" // an operator wants it gone
	statusRemoved  = "removed"  // and it owns nothing any more
	statusDead     = "dead"
	statusSilent   = "not answering" // it takes no connections or no requests, and its lease hasn't ended yet
)

// BrokerInfo is a broker that lives, owns partitions, or that operators want something of.
type BrokerInfo struct {
	ID          int32    `json:"id"`
	Status      string   `json:"status"`  // alive, stopping, draining, drained, removing, removed, dead; in a status also: not answering
	Alive       bool     `json:"alive"`   // by its lease
	Answers     bool     `json:"answers"` // false: dead; in a status also: not answering
	Host        string   `json:"host"`
	Port        int32    `json:"port"`
	AdminURL    string   `json:"admin_url"`
	Rack        string   `json:"rack"`
	Labels      []string `json:"labels"`
	Roles       []string `json:"roles"`
	Weight      float64  `json:"weight"`
	Version     string   `json:"version"`
	Incarnation string   `json:"incarnation"`
	StartedAt   int64    `json:"started_at"`
	Draining    bool     `json:"draining"` // it shuts down, or an operator wants it drained or removed
	Controller  bool     `json:"controller"`

	Partitions int            `json:"partitions"` // that it owns
	Serving    int            `json:"serving"`    // of those
	OnlyHere   int            `json:"only_here"`  // of those: its disk may hold the only copy of their last records
	MovesIn    int            `json:"moves_in"`   // under way
	MovesOut   int            `json:"moves_out"`
	States     map[string]int `json:"states"` // of what it owns
	Wish       *WishInfo      `json:"wish,omitempty"`
}

// WishInfo is what operators want of a broker.
type WishInfo struct {
	Draining bool   `json:"draining"`
	Removed  bool   `json:"removed"`
	Since    int64  `json:"since"`
	Why      string `json:"why"`
}

// BrokerDetail is one broker with what it owns.
type BrokerDetail struct {
	BrokerInfo
	Topics []BrokerTopic `json:"topics"`
	Moves  []MoveInfo    `json:"moves"` // to it and from it
	Health *NodeHealth   `json:"health,omitempty"`
}

// BrokerTopic is what a broker owns of a topic.
type BrokerTopic struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	OnlyHere   int    `json:"only_here"`
}

func (a *api) brokers(w http.ResponseWriter, _ *http.Request) {
	image := a.Cluster.Image()
	writeJSON(w, http.StatusOK, map[string]any{"brokers": brokerList(image, tallyOf(image))})
}

// brokerList returns all brokers in the order of their ids.
func brokerList(image *cluster.Image, s *tally) []BrokerInfo {
	ids := map[int32]bool{}
	for _, b := range image.Brokers() {
		ids[b.ID] = true
	}
	for id := range s.brokers {
		ids[id] = true
	}
	for id := range image.BrokerWishes() {
		ids[id] = true
	}
	list := []BrokerInfo{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		list = append(list, brokerInfo(image, s, id))
	}
	return list
}

func brokerInfo(image *cluster.Image, s *tally, id int32) BrokerInfo {
	b, alive := image.Broker(id)
	i := BrokerInfo{
		ID: id, Alive: alive, Answers: alive, Host: b.Host, Port: b.Port, AdminURL: b.AdminURL, Rack: b.Rack, Labels: orEmpty(b.Labels), Roles: orEmpty(b.Roles),
		Weight: cmp.Or(max(b.Weight, 0), 1), Version: b.Version, Incarnation: b.Incarnation, StartedAt: b.StartedAt,
		Controller: id == image.ControllerID(), States: map[string]int{},
	}
	if t := s.brokers[id]; t != nil {
		i.Partitions, i.Serving, i.OnlyHere, i.MovesIn, i.MovesOut, i.States = t.partitions, t.serving, t.only, t.in, t.out, t.states
		if !alive {
			i.Serving = 0
		}
	}
	wish, _ := image.BrokerWish(id)
	if wish.Drains() {
		i.Wish = &WishInfo{Draining: wish.Draining, Removed: wish.Removed, Since: wish.Since, Why: wish.Why}
	}
	i.Draining = b.Draining || wish.Drains()
	switch {
	case wish.Removed && i.Partitions == 0:
		i.Status = statusRemoved
	case !alive:
		i.Status = statusDead
	case wish.Removed:
		i.Status = statusRemoving
	case wish.Draining && i.Partitions == 0:
		i.Status = statusDrained
	case wish.Draining:
		i.Status = statusDraining
	case b.Draining:
		i.Status = statusStopping
	default:
		i.Status = statusAlive
	}
	return i
}

// findBroker answers itself and returns false when there is no such broker.
func (a *api) findBroker(w http.ResponseWriter, r *http.Request, image *cluster.Image, s *tally) (int32, bool) {
	n, err := strconv.ParseInt(r.PathValue("broker"), 10, 32)
	if err != nil || n < 0 {
		writeError(w, http.StatusBadRequest, fmt.Errorf("%q is not the id of a broker", r.PathValue("broker")))
		return 0, false
	}
	id := int32(n)
	_, alive := image.Broker(id)
	_, wished := image.BrokerWish(id)
	if !alive && !wished && s.brokers[id] == nil {
		writeError(w, http.StatusNotFound, fmt.Errorf("there is no broker %d: none lives under this id and it owns no partition", id))
		return 0, false
	}
	return id, true
}

func (a *api) broker(w http.ResponseWriter, r *http.Request) {
	image := a.Cluster.Image()
	s := tallyOf(image)
	id, ok := a.findBroker(w, r, image, s)
	if !ok {
		return
	}
	d := a.brokerDetail(image, s, id)
	if b, alive := image.Broker(id); alive {
		h := a.askHealth(r.Context(), brokerNode(&b))
		d.Health = &h
	}
	writeJSON(w, http.StatusOK, d)
}

func (a *api) brokerDetail(image *cluster.Image, s *tally, id int32) BrokerDetail {
	d := BrokerDetail{BrokerInfo: brokerInfo(image, s, id), Topics: []BrokerTopic{}, Moves: []MoveInfo{}}
	byTopic := map[string]*BrokerTopic{}
	for pid, as := range image.Assignments() {
		t := image.TopicByID(pid.Topic)
		if as.Owner != id || t == nil {
			continue
		}
		x := byTopic[t.Name]
		if x == nil {
			x = &BrokerTopic{Topic: t.Name}
			byTopic[t.Name] = x
		}
		x.Partitions++
		if !as.Safe {
			x.OnlyHere++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		d.Topics = append(d.Topics, *byTopic[name])
	}
	for _, m := range a.moveList(image) {
		if m.From == id || m.To == id {
			d.Moves = append(d.Moves, m)
		}
	}
	return d
}

type wishRequest struct {
	// Why is kept for other operators, at most 200 bytes.
	Why string `json:"why"`
}

func (a *api) drainBroker(w http.ResponseWriter, r *http.Request) {
	a.wishBroker(w, r, func(image *cluster.Image, id int32) (cluster.BrokerWish, error) {
		b, alive := image.Broker(id)
		switch {
		case !alive:
			return cluster.BrokerWish{}, fmt.Errorf("broker %d is dead and can't hand over its partitions: start it first, or remove it", id)
		case !b.OwnsPartitions():
			return cluster.BrokerWish{}, fmt.Errorf("node %d owns no partitions: its roles lack \"broker\"", id)
		case !canTake(image, id):
			return cluster.BrokerWish{}, fmt.Errorf("no other broker could take the partitions of broker %d: start one, or undrain one", id)
		}
		return cluster.BrokerWish{Draining: true}, nil
	})
}

func (a *api) undrainBroker(w http.ResponseWriter, r *http.Request) {
	a.wishBroker(w, r, func(*cluster.Image, int32) (cluster.BrokerWish, error) { return cluster.BrokerWish{}, nil })
}

func (a *api) removeBroker(w http.ResponseWriter, r *http.Request) {
	a.wishBroker(w, r, func(image *cluster.Image, id int32) (cluster.BrokerWish, error) {
		if !canTake(image, id) {
			return cluster.BrokerWish{}, fmt.Errorf("no other broker could take the partitions of broker %d: start one, or undrain one", id)
		}
		return cluster.BrokerWish{Removed: true}, nil
	})
}

// canTake tells whether a broker other than id may get partitions.
func canTake(image *cluster.Image, id int32) bool {
	return slices.ContainsFunc(image.Brokers(), func(b cluster.Broker) bool {
		wish, _ := image.BrokerWish(b.ID)
		return b.ID != id && b.OwnsPartitions() && !b.Draining && !wish.Drains()
	})
}

// wishBroker writes a wish and answers with the broker as it is then.
func (a *api) wishBroker(w http.ResponseWriter, r *http.Request, wish func(*cluster.Image, int32) (cluster.BrokerWish, error)) {
	image := a.Cluster.Image()
	id, ok := a.findBroker(w, r, image, tallyOf(image))
	if !ok {
		return
	}
	var req wishRequest
	if !readBody(w, r, &req, `{} or {"why": "..."}`) {
		return
	}
	want, err := wish(image, id)
	if err != nil {
		writeError(w, http.StatusConflict, err)
		return
	}
	want.Why = req.Why
	if had, _ := image.BrokerWish(id); had.Draining == want.Draining && had.Removed == want.Removed && (want.Why == "" || want.Why == had.Why) {
		writeJSON(w, http.StatusOK, a.brokerDetail(image, tallyOf(image), id)) // as it is wished already
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTime)
	defer cancel()
	if err := a.Operator.SetBrokerWish(ctx, id, want); err != nil {
		writeChangeError(w, err)
		return
	}
	image = a.Cluster.Image()
	writeJSON(w, http.StatusOK, a.brokerDetail(image, tallyOf(image), id))
}

// writeChangeError answers for a change of the cluster that was not made.
func writeChangeError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, cluster.ErrInvalidMove), errors.Is(err, cluster.ErrInvalidConfig):
		writeError(w, http.StatusConflict, err)
	case errors.Is(err, cluster.ErrUnavailable):
		writeError(w, http.StatusServiceUnavailable, fmt.Errorf("etcd does not answer, so nothing can be changed now; what was asked for may or may not have been noted: %w", err))
	default:
		writeError(w, http.StatusInternalServerError, err)
	}
}
