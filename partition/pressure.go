package partition

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pressure says how full the local log is. Producers are slowed before it is full and refused when it is; reading
// and uploading go on, since uploads are what frees space (design, section 4).
type pressure struct {
	used   atomic.Int64 // bytes between the oldest file and the newest write
	oldest atomic.Uint64
	refuse atomic.Bool
}

// Shares of the disk budget.
const (
	reclaimShare  = 0.70 // from here on the oldest files are given up before their local retention has passed
	throttleShare = 0.90 // from here on producers are slowed
)

// maxThrottle is the delay that producers are asked for right before writes are refused.
const maxThrottle = time.Second

// measure follows the log's size; the commit loop calls it after each step.
func (s *Set) measure(written uint64) {
	used := int64(written - min(written, s.pressure.oldest.Load()))
	s.pressure.used.Store(used)
	if float64(used) > reclaimShare*float64(s.o.DiskBudget) {
		s.kickReclaim()
	}
	full := used >= s.o.DiskBudget
	if s.pressure.refuse.CompareAndSwap(!full, full) {
		if full {
			s.event(Error, nil, fmt.Sprintf("the local log has used its budget of %d bytes and nothing can be given up; writes are refused", s.o.DiskBudget), nil)
		} else {
			s.event(Info, nil, "the local log has room again; writes are accepted", nil)
		}
	}
}

// admitBytes refuses a write when the budget is used up.
func (s *Set) admitBytes(int) error {
	if s.pressure.refuse.Load() {
		return fmt.Errorf("%w: the local log has used its disk budget", ErrStorage)
	}
	if s.fatal.Load() != nil {
		return *s.fatal.Load()
	}
	return nil
}

// throttle is how long a producer should wait before its next request.
func (s *Set) throttle() time.Duration {
	used, budget := float64(s.pressure.used.Load()), float64(s.o.DiskBudget)
	if used <= throttleShare*budget {
		return 0
	}
	share := min(1, (used/budget-throttleShare)/(1-throttleShare))
	return time.Duration(share * float64(maxThrottle))
}

// LogBytes is the span of the log between its oldest file and its newest write.
func (s *Set) LogBytes() int64 { return s.pressure.used.Load() }
