package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
)

// LossInfo tells what a forced move of a partition would lose.
type LossInfo struct {
	Assignment
	// Loses is set when a forced move may lose acknowledged records; otherwise an ordinary one does, or none is needed.
	Loses bool   `json:"loses"`
	Why   string `json:"why"` // in one sentence
	// HeadKnown: the partition's head in the bucket was read. Else HeadError says why not, and the offsets are -1.
	HeadKnown bool   `json:"head_known"`
	HeadError string `json:"head_error,omitempty"`
	Start     int64  `json:"start"`
	// BucketEnd is the first offset that isn't in the bucket: all from here on would be lost.
	BucketEnd int64 `json:"bucket_end"`
	// BucketTime is when the last record that is in the bucket was appended, ms; -1 when unknown.
	BucketTime int64 `json:"bucket_time"`
	Records    int64 `json:"records"` // in the bucket
	// Ceiling is where the partition would go on: no offset at or above it was ever given to a record. The gap stays empty.
	Ceiling int64 `json:"ceiling"`
	// OwnerEnd is the first offset the owner has not confirmed, when the owner can still be asked; -1 when not.
	OwnerEnd int64 `json:"owner_end"`
	// Streams are WAL streams whose records the new owner takes over first: those are not lost.
	Streams int `json:"streams"`
}

func (a *api) loss(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("partition"), 10, 32)
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("%q is not the number of a partition", r.PathValue("partition")))
		return
	}
	image := a.Cluster.Image()
	t, id, err := findPartition(image, r.PathValue("topic"), int32(n))
	if err != nil {
		writeError(w, http.StatusNotFound, err)
		return
	}
	l := LossInfo{Assignment: newAssignment(image, t, id), Start: -1, BucketEnd: -1, BucketTime: -1, Records: -1, Ceiling: -1, OwnerEnd: -1}
	l.judge()
	a.readHead(r, id, &l)
	if owner, alive := image.Broker(l.Owner); alive {
		a.askOwner(r, &owner, &l)
	}
	writeJSON(w, http.StatusOK, l)
}

// judge says whether a forced move loses anything.
func (l *LossInfo) judge() {
	switch {
	case l.Problem == "":
		l.Why = fmt.Sprintf("broker %d serves the partition: an ordinary move loses nothing", l.Owner)
	case l.Safe:
		l.Why = "everything acknowledged is in the bucket, so nothing is lost and another broker takes the partition over by itself"
	case l.Problem == ailUnplaced:
		l.Why = "nobody owns the partition: the controller places it by itself"
	case l.Problem == ailFailed:
		l.Loses, l.Why = true, fmt.Sprintf("the partition failed at broker %d, whose disk may hold the only copy of its last records", l.Owner)
	case l.Problem == ailWaiting:
		l.Loses, l.Why = true, fmt.Sprintf("broker %d is dead and its disk may hold the only copy of the last records", l.Owner)
	default:
		l.Why = fmt.Sprintf("the partition is %s at broker %d: wait, it serves in a moment", l.Problem, l.Owner)
	}
}

// headTime bounds the reading of a head.
const headTime = 10 * time.Second

func (a *api) readHead(r *http.Request, id frame.PartitionID, l *LossInfo) {
	if a.Heads == nil {
		l.HeadError = "this node doesn't read the bucket: ask a broker"
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), headTime)
	defer cancel()
	h, err := a.Heads.Load(ctx, id)
	switch {
	case errors.Is(err, tier.ErrNoHead):
		// Nothing was ever rolled.
		l.HeadKnown, l.Start, l.BucketEnd, l.Records, l.Ceiling = true, 0, 0, 0, -1
	case err != nil:
		l.HeadError = err.Error()
	default:
		l.HeadKnown, l.Start, l.BucketEnd, l.Records, l.Ceiling, l.Streams = true, h.Start, h.End, h.Records, h.Ceiling, len(h.Pending)
		for i := len(h.Extents) - 1; i >= 0; i-- {
			if e := &h.Extents[i]; e.Kind != tier.KindVoid {
				l.BucketTime = e.MaxAppendTime
				break
			}
		}
	}
}

// askOwner asks an owner that lives what it has confirmed; without an answer that stays unknown.
func (a *api) askOwner(r *http.Request, owner *cluster.Broker, l *LossInfo) {
	var page PartitionPage
	if owner.ID == a.BrokerID {
		for _, s := range a.statsOf(func(id frame.PartitionID) bool { return id.Partition == l.Partition }) {
			page.Partitions = append(page.Partitions, a.toPartition(&s))
		}
	} else if err := a.ask(r.Context(), brokerNode(owner), "/api/v1/partitions?limit="+strconv.Itoa(maxPartitions)+"&topic="+url.QueryEscape(l.Topic), &page); err != nil {
		return
	}
	for _, p := range page.Partitions {
		if p.Topic == l.Topic && p.Partition == l.Partition && p.Epoch == l.Epoch {
			l.OwnerEnd = p.Durable
		}
	}
}
