package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// States of a move.
const (
	moveWaiting  = "waiting"  // the controller has not begun it
	moveWarming  = "warming"  // the target loads what it needs
	moveDraining = "draining" // the owner brings its last records into the bucket
	moveOpening  = "opening"  // the target owns it and brings it in order
	moveStuck    = "stuck"    // it takes far longer than moves do
)

// stuckAfter is the age, in ms, from which a move under way is told to be stuck: moves take a second, and what goes wrong
// with one is given up and tried again well before.
const stuckAfter = 30_000

// MoveInfo is a move that is under way or that somebody wishes for.
type MoveInfo struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int32  `json:"from"` // present owner, -1 for none
	To        int32  `json:"to"`
	State     string `json:"state"` // waiting, warming, draining, opening, stuck
	Since     int64  `json:"since"` // when it was wished for or begun
	AgeMs     int64  `json:"age_ms"`
	Force     bool   `json:"force"`
	Wished    bool   `json:"wished"` // by an operator; others empty a broker that is drained
	Goal      string `json:"goal"`
	Waits     string `json:"waits,omitempty"` // what a waiting one waits for
}

// MoveRequest asks for one partition at another broker.
type MoveRequest struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	To        int32  `json:"to"`
	// Force gives up what only the disk of a dead owner has.
	Force bool `json:"force,omitempty"`
	// Keep: the automatic rebalance leaves it there.
	Keep bool   `json:"keep,omitempty"`
	Goal string `json:"goal,omitempty"`
}

// MoveResult is what became of requests for moves.
type MoveResult struct {
	Set int `json:"set"`
	// There are the partitions that are where they were wished already.
	There int `json:"there"`
}

// maxMovesPerRequest bounds one request, so that its answer comes in seconds.
const maxMovesPerRequest = 500

func (a *api) moves(w http.ResponseWriter, _ *http.Request) {
	image := a.Cluster.Image()
	list := a.moveList(image)
	writeJSON(w, http.StatusOK, map[string]any{"moves": list})
}

// moveList returns all moves, those under way first, the oldest first.
func (a *api) moveList(image *cluster.Image) []MoveInfo {
	list := []MoveInfo{}
	now := a.Now()
	for id, as := range image.Assignments() {
		if as.Target == cluster.NoBroker {
			continue
		}
		t := image.TopicByID(id.Topic)
		if t == nil {
			continue
		}
		m := MoveInfo{Topic: t.Name, Partition: id.Partition, From: as.Owner, To: as.Target, State: moveWarming, Since: as.TargetSince,
			AgeMs: max(0, now-as.TargetSince), Goal: fmt.Sprintf("broker %d is drained", as.Owner)}
		if as.State == cluster.Draining {
			m.State = moveDraining
		}
		if m.AgeMs > stuckAfter {
			m.State = moveStuck
		}
		if wish, ok := image.Move(id); ok {
			m.Force, m.Wished, m.Goal = wish.Force, true, wish.Goal
		}
		list = append(list, m)
	}
	for _, wish := range image.Moves() {
		as, placed := image.Assignment(wish.ID)
		t := image.TopicByID(wish.ID.Topic)
		if t == nil || placed && as.Target != cluster.NoBroker {
			continue
		}
		m := MoveInfo{Topic: t.Name, Partition: wish.ID.Partition, From: cluster.NoBroker, To: wish.Target, State: moveWaiting, Since: wish.Since,
			AgeMs: max(0, now-wish.Since), Force: wish.Force, Wished: true, Goal: wish.Goal}
		if placed {
			m.From = as.Owner
		}
		if placed && as.Owner == wish.Target {
			ail := ailment(image, t, &as, placed)
			if ail == "" {
				continue // it is there, and the controller is about to take the wish away
			}
			if ail == ailOpening {
				m.State = moveOpening
				list = append(list, m)
				continue
			}
		}
		m.Waits = a.waits(image, t, &as, placed, &wish)
		list = append(list, m)
	}
	slices.SortFunc(list, func(x, y MoveInfo) int {
		return cmp.Or(waitingLast(x.State)-waitingLast(y.State), cmp.Compare(x.Since, y.Since), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return list
}

func waitingLast(state string) int {
	if state == moveWaiting {
		return 1
	}
	return 0
}

// waits says why the controller has not begun a move.
func (a *api) waits(image *cluster.Image, t *cluster.Topic, as *cluster.Assignment, placed bool, wish *cluster.MoveWish) string {
	ail := ailment(image, t, as, placed)
	_, alive := image.Broker(wish.Target)
	switch {
	case image.ControllerID() == cluster.NoBroker:
		return "no controller leads"
	case !alive:
		return fmt.Sprintf("broker %d is dead", wish.Target)
	case ail == ailWaiting && !wish.Force:
		return fmt.Sprintf("broker %d is dead and its disk may hold the only copy: force-move tells what would be lost", as.Owner)
	case ail != "" && !wish.Force:
		return "the partition is " + ail
	}
	return "its turn"
}

type movesRequest struct {
	Moves []MoveRequest `json:"moves"`
}

func (a *api) setMoves(w http.ResponseWriter, r *http.Request) {
	var req movesRequest
	if !readBody(w, r, &req, `{"moves": [{"topic": "t", "partition": 0, "to": 1}]}`) {
		return
	}
	if len(req.Moves) > maxMovesPerRequest {
		writeError(w, http.StatusBadRequest, fmt.Errorf("at most %d moves in one request", maxMovesPerRequest))
		return
	}
	image := a.Cluster.Image()
	var wishes []cluster.MoveWish
	result := MoveResult{}
	for _, m := range req.Moves {
		wish, there, err := checkMove(image, m)
		switch {
		case errors.Is(err, errNoPartition):
			writeError(w, http.StatusNotFound, err)
			return
		case err != nil:
			writeError(w, http.StatusConflict, fmt.Errorf("%s/%d: %w", m.Topic, m.Partition, err))
			return
		case there:
			result.There++
		default:
			wishes = append(wishes, wish)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTime)
	defer cancel()
	if err := a.Operator.SetMoves(ctx, wishes); err != nil {
		writeChangeError(w, err)
		return
	}
	result.Set = len(wishes)
	writeJSON(w, http.StatusOK, result)
}

var errNoPartition = errors.New("no such partition")

func findPartition(image *cluster.Image, topic string, n int32) (*cluster.Topic, frame.PartitionID, error) {
	t := image.TopicByName(topic)
	switch {
	case t == nil:
		return nil, frame.PartitionID{}, fmt.Errorf("%w: there is no topic %q", errNoPartition, topic)
	case n < 0 || n >= t.Partitions:
		return nil, frame.PartitionID{}, fmt.Errorf("%w: %s has the partitions 0 to %d", errNoPartition, topic, t.Partitions-1)
	}
	return t, frame.PartitionID{Topic: t.ID, Partition: n}, nil
}

// checkMove makes a wish of a request; there is set when the partition is where it is wished and stays there.
func checkMove(image *cluster.Image, m MoveRequest) (wish cluster.MoveWish, there bool, err error) {
	t, id, err := findPartition(image, m.Topic, m.Partition)
	if err != nil {
		return wish, false, err
	}
	wish = cluster.MoveWish{ID: id, Target: m.To, Force: m.Force, Keep: m.Keep, Goal: m.Goal}
	as, placed := image.Assignment(id)
	ail := ailment(image, t, &as, placed)
	if placed && as.Owner == m.To && as.Target == cluster.NoBroker && ail != ailWaiting && (as.Placed || !m.Keep) {
		if _, wished := image.Move(id); !wished {
			return wish, true, nil
		}
	}
	if err := image.CheckMove(wish); err != nil {
		return wish, false, err
	}
	if ail == ailWaiting && !m.Force {
		return wish, false, fmt.Errorf("broker %d, its owner, is dead, and its disk may hold the only copy of the last records: start it again; "+
			"if it is lost, force-move tells what would be lost and goes on without it", as.Owner)
	}
	return wish, false, nil
}

type cancelRequest struct {
	// Moves names partitions; All takes back all wishes, or those whose goal begins with Goal.
	Moves []struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
	} `json:"moves"`
	All  bool   `json:"all"`
	Goal string `json:"goal"`
}

// CancelResult is what became of a request to take wishes back.
type CancelResult struct {
	Canceled int `json:"canceled"`
	// Ending are the moves whose owner drains already: they end as they were begun.
	Ending int `json:"ending"`
}

func (a *api) cancelMoves(w http.ResponseWriter, r *http.Request) {
	var req cancelRequest
	if !readBody(w, r, &req, `{"moves": [{"topic": "t", "partition": 0}]} or {"all": true}`) {
		return
	}
	if req.All == (len(req.Moves) > 0) {
		writeError(w, http.StatusBadRequest, errors.New("give either \"moves\" or \"all\": true"))
		return
	}
	image := a.Cluster.Image()
	var ids []frame.PartitionID
	for _, m := range req.Moves {
		_, id, err := findPartition(image, m.Topic, m.Partition)
		if err != nil {
			writeError(w, http.StatusNotFound, err)
			return
		}
		if _, ok := image.Move(id); ok {
			ids = append(ids, id)
		}
	}
	if req.All {
		for _, m := range image.Moves() {
			if strings.HasPrefix(m.Goal, req.Goal) {
				ids = append(ids, m.ID)
			}
		}
	}
	a.cancelAll(w, r, ids)
}

// cancelAll takes wishes back and answers with what became of them.
func (a *api) cancelAll(w http.ResponseWriter, r *http.Request, ids []frame.PartitionID) {
	image := a.Cluster.Image()
	result := CancelResult{Canceled: len(ids)}
	for _, id := range ids {
		if as, ok := image.Assignment(id); ok && as.State == cluster.Draining && as.Target != cluster.NoBroker {
			result.Ending++
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTime)
	defer cancel()
	if err := a.Operator.CancelMoves(ctx, ids); err != nil {
		writeChangeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, result)
}
