package tier

import (
	"fmt"
	"math"
)

// FirstCeiling is the offset below which a partition without a head may have been written to.
const FirstCeiling = minHeadroom

// Renewal says for which life of the cluster a restore renews heads.
type Renewal struct {
	Cluster string // new cluster id
	By      Owner  // stands in the head as its owner until a broker claims it; its Epoch is not used
	Gap     int32  // how far the epoch rises: clients may have seen epochs that no head was ever claimed under
	Topic   string // for a head that there was none of
}

// Renew is the edit of a swap that gives a head to the next life of the cluster: nobody of the last one can change it any more. The next
// offset is the ceiling, since clients may have seen what the bucket never got: the gap becomes a void extent. While streams are pending
// their entries belong before the gap; skipped is false then, and who adopts them must jump. A head that a restore has renewed already, and
// that nobody has claimed since, does not jump again.
func (h *Head) Renew(r Renewal) (skipped bool, err error) {
	if h.Epoch > math.MaxInt32-r.Gap {
		return false, fmt.Errorf("renew head of %v: epoch %d leaves no room: %w", h.ID, h.Epoch, ErrTooLarge)
	}
	fresh := h.Ceiling == 0
	again := !fresh && h.Owner == r.By.Broker && h.OwnerIncarnation == r.By.Incarnation
	h.Cluster = r.Cluster
	h.Epoch += r.Gap
	h.Owner, h.OwnerIncarnation = r.By.Broker, r.By.Incarnation
	if fresh {
		h.Topic, h.Ceiling = r.Topic, FirstCeiling
	}
	if h.Tombstone || again || len(h.Pending) > 0 {
		return len(h.Pending) == 0, nil
	}
	h.AddEpoch(EpochStart{Epoch: h.Epoch, Start: h.End, Owner: r.By.Incarnation})
	if h.End < h.Ceiling {
		if err := h.append(VoidExtent(h.End, h.Ceiling, h.Epoch)); err != nil {
			return false, err
		}
		h.LastRoll = 0
	}
	return true, nil
}
