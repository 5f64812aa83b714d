package kafka

import (
	"sync"
	"sync/atomic"
	"time"
)

// Events of one kind beyond eventBurst in eventWindow are counted and not told, so that a
// port scanner or a misconfigured fleet can't fill the log.
const (
	eventBurst  = 10
	eventWindow = 10 * time.Second
)

// events tells and counts events.
type events struct {
	on     func(Event)
	counts [eventKinds]atomic.Int64

	mu    sync.Mutex
	rates [eventKinds]struct {
		since      time.Time
		told       int
		suppressed int64
	}
}

func (s *events) tell(e Event) {
	s.counts[e.Kind].Add(1)
	if s.on == nil {
		return
	}
	now := time.Now()
	s.mu.Lock()
	r := &s.rates[e.Kind]
	if now.Sub(r.since) >= eventWindow {
		r.since, r.told = now, 0
	}
	if r.told >= eventBurst {
		r.suppressed++
		s.mu.Unlock()
		return
	}
	r.told++
	e.Suppressed, r.suppressed = r.suppressed, 0
	s.mu.Unlock()
	s.on(e)
}

var eventNames = [eventKinds]string{
	EventGarbage: "garbage", EventTLSHello: "tls_hello", EventHTTP: "http", EventTooLarge: "too_large",
	EventTruncated: "truncated", EventSlowSender: "slow_sender", EventSlowReader: "slow_reader",
	EventIdle: "idle", EventHalfOpen: "half_open", EventTLSHandshake: "tls_handshake",
	EventTooManyConns: "too_many_connections", EventFault: "memory_fault", EventHandler: "handler",
	EventAccept: "accept",
}

// String is a short name, as for a metric's label.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}
