package partition

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/segment"
)

// pressure says how full the local log is. Producers are slowed before it is full and refused when it is; reading
// and uploading go on, since uploads are what frees space (design, section 4).
type pressure struct {
	used   atomic.Int64 // bytes that full files take on disk and that are written of the active one
	budget atomic.Int64 // SetOptions.DiskBudget
	refuse atomic.Bool

	mu     sync.Mutex
	sealed int64  // bytes of the full files
	base   uint64 // of the active file, and its end
	end    uint64
}

// follow computes the used bytes for a written position. Positions aren't bytes on disk: each start of the log begins a
// new file, and files that were cut short leave gaps in the position space. The files are looked at again when the
// position has left the active one, or when again is set because some were dropped.
func (r *pressure) follow(log *segment.Log, written uint64, again bool) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if again || written < r.base || written >= r.end {
		r.sealed, r.base, r.end = 0, written, written
		for _, f := range log.Files() {
			if !f.Active {
				r.sealed += f.Bytes
				continue
			}
			r.base, r.end = f.Base, f.Base+uint64(f.Bytes)
		}
	}
	return r.sealed + int64(max(written, r.base)-r.base)
}

// Shares of the disk budget.
const (
	reclaimShare  = 0.70 // from here on the oldest files are given up before their local retention has passed
	throttleShare = 0.90 // from here on producers are slowed
)

// maxThrottle is the delay that producers are asked for right before writes are refused.
const maxThrottle = time.Second

// measure follows the log's size; the commit loop calls it after each step, reclaim with again after a file is gone.
func (s *Set) measure(written uint64, again bool) {
	used := s.pressure.follow(s.log, written, again)
	s.pressure.used.Store(used)
	if float64(used) > reclaimShare*float64(s.pressure.budget.Load()) {
		s.kickReclaim()
	}
	full := used >= s.pressure.budget.Load()
	if s.pressure.refuse.CompareAndSwap(!full, full) {
		if full {
			s.event(Error, nil, fmt.Sprintf("the local log has used its budget of %d bytes and nothing can be given up; writes are refused", s.pressure.budget.Load()), nil)
		} else {
			s.event(Info, nil, "the local log has room again; writes are accepted", nil)
		}
	}
}

// DiskBudget is how many bytes the local log may use.
func (s *Set) DiskBudget() int64 { return s.pressure.budget.Load() }

// SetDiskBudget changes it; writes that were refused for want of budget are accepted again at once when it suffices.
func (s *Set) SetDiskBudget(bytes int64) {
	s.pressure.budget.Store(bytes)
	s.measure(s.log.Watermarks().Written, true)
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
	used, budget := float64(s.pressure.used.Load()), float64(s.pressure.budget.Load())
	if used <= throttleShare*budget {
		return 0
	}
	share := min(1, (used/budget-throttleShare)/(1-throttleShare))
	return time.Duration(share * float64(maxThrottle))
}

// LogBytes is what the log holds on disk, without what is allocated ahead.
func (s *Set) LogBytes() int64 { return s.pressure.used.Load() }
