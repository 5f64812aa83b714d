package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ControllerNode is one living node with the controller role: the leading one, or one that waits to lead.
type ControllerNode struct {
	ID          int32  `json:"id"` // of the node; a broker may have the same
	Incarnation string `json:"incarnation"`
	PeerURL     string `json:"peerUrl,omitempty"`
	AdminURL    string `json:"adminUrl,omitempty"`
	Version     string `json:"version,omitempty"`
	StartedAt   int64  `json:"startedAt,omitempty"` // ms since 1970
	Lease       int64  `json:"-"`                   // etcd lease; also names its candidacy
}

// AnnounceController makes a controller known as long as its session lives.
func (c *Client) AnnounceController(ctx context.Context, s *Session, n ControllerNode) error {
	if n.Incarnation == "" || len(n.Incarnation) > maxIncarnation {
		return fmt.Errorf("announce controller %d: incarnation of %d bytes, want 1 to %d", n.ID, len(n.Incarnation), maxIncarnation)
	}
	value, err := encodeRecord(n)
	if err != nil {
		return err
	}
	r, err := c.retryTxn(ctx, "announce controller", nil,
		[]clientv3.Op{clientv3.OpPut(c.keys.controller(int64(s.lease)), value, clientv3.WithLease(s.lease))}, nil)
	if err != nil {
		return err
	}
	c.seen(ctx, r.Header.Revision)
	return nil
}

func (s schema) controller(lease int64) string {
	return fmt.Sprintf("%s%s%016x", s.prefix, keyControllers, lease)
}

func parseLease(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0, fmt.Errorf("bad lease %q in the key", s)
	}
	return n, nil
}

func decodeController(lease int64, value []byte) (ControllerNode, error) {
	var n ControllerNode
	if err := decodeRecord(value, &n); err != nil {
		return n, err
	}
	if n.Incarnation == "" || len(n.Incarnation) > maxIncarnation {
		return n, fmt.Errorf("incarnation of %d bytes", len(n.Incarnation))
	}
	n.Lease = lease
	return n, nil
}

// putController takes a controller over; the list stays sorted by id, then lease.
func (b *builder) putController(rest string, value []byte) error {
	lease, err := parseLease(rest)
	if err != nil {
		return err
	}
	n, err := decodeController(lease, value)
	if err != nil {
		return err
	}
	b.delController(rest)
	b.next.controllers = append(b.next.controllers, n)
	slices.SortFunc(b.next.controllers, func(x, y ControllerNode) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Lease, y.Lease))
	})
	return nil
}

// delController leaves a list of its own behind, also when nothing was to delete.
func (b *builder) delController(rest string) {
	lease, err := parseLease(rest)
	if err != nil {
		return
	}
	b.next.controllers = slices.DeleteFunc(slices.Clone(b.next.controllers), func(n ControllerNode) bool { return n.Lease == lease })
}

// Controllers returns the living controllers sorted by id. The slice is shared.
func (i *Image) Controllers() []ControllerNode { return i.controllers }

// LeadingController returns the controller that leads; false while there is none, or
// it has not announced itself.
func (i *Image) LeadingController() (ControllerNode, bool) {
	if len(i.candidates) == 0 {
		return ControllerNode{}, false
	}
	key := i.candidates[0].key
	for _, n := range i.controllers {
		if len(key) >= 16 && key[len(key)-16:] == fmt.Sprintf("%016x", n.Lease) {
			return n, true
		}
	}
	return ControllerNode{}, false
}
