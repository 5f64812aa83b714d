// Package account reads from the system what a broker's processes cost: CPU time, memory and bytes written from /proc. Nothing that is
// compared comes from a broker's own account of itself.
//
// A broker may be several processes; their numbers are added up. Processes that end between two looks take their account with
// them, so what is measured must live through the window.
package account

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/bench/process"
)

// Account is what some processes have used so far, and their memory now.
type Account struct {
	At         time.Time
	User, Sys  time.Duration // CPU time
	Anonymous  int64         // resident bytes that belong to the processes alone: heaps, stacks
	File       int64         // resident bytes of mapped files: page cache that others could have, too
	Peak       int64         // highest resident bytes since ResetPeak, both kinds; of each process in its own moment
	WriteBytes int64         // bytes that they made dirty, or wrote past the page cache
	Threads    int
}

// CPU is the time used in user and kernel mode.
func (a Account) CPU() time.Duration { return a.User + a.Sys }

// Take adds up the accounts of processes.
func Take(pids []int) (Account, error) {
	sum := Account{At: time.Now()}
	if len(pids) == 0 {
		return sum, errors.New("no process to take the account of")
	}
	for _, pid := range pids {
		u, err := process.UsageOf(pid)
		if err != nil {
			return sum, err
		}
		sum.User += u.User
		sum.Sys += u.Sys
		sum.Anonymous += u.Anonymous
		sum.File += u.File
		sum.Peak += u.Peak
		sum.WriteBytes += u.WriteBytes
		sum.Threads += u.Threads
	}
	return sum, nil
}

// ResetPeak lets Peak begin anew from what is resident now.
func ResetPeak(pids []int) error {
	for _, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return err
		}
	}
	return nil
}

// Cost is what happened between two accounts.
type Cost struct {
	Wall, User, Sys time.Duration
	WriteBytes      int64
	Peak            int64 // resident bytes, as in the later account
	Anonymous       int64 // likewise
}

// CPU is the time used in user and kernel mode.
func (c Cost) CPU() time.Duration { return c.User + c.Sys }

// Since is what came after an earlier account of the same processes.
func (a Account) Since(begin Account) Cost {
	return Cost{
		Wall: a.At.Sub(begin.At), User: a.User - begin.User, Sys: a.Sys - begin.Sys,
		WriteBytes: a.WriteBytes - begin.WriteBytes, Peak: a.Peak, Anonymous: a.Anonymous,
	}
}

// Watch looks at the processes' memory until it is stopped.
type Watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	peak   int64
	err    error
}

// watchEvery is short against how long a heap stays large, and costs a fraction of a percent of a processor.
const watchEvery = 50 * time.Millisecond

// WatchAnonymous begins to look for the highest anonymous memory, which the kernel keeps no mark of.
func WatchAnonymous(pids func() []int) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{cancel: cancel}
	w.done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			a, err := Take(pids())
			if err != nil {
				w.err = err
				return
			}
			w.peak = max(w.peak, a.Anonymous)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// Stop gives the highest number of anonymous resident bytes that was seen.
func (w *Watch) Stop() (int64, error) {
	w.cancel()
	w.done.Wait()
	return w.peak, w.err
}
