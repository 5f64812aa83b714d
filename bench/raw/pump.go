package raw

import (
	"context"
	"sync"
)

// Pump sends the requests round and round with up to inflight of them under way, until ctx ends, and then waits for the
// answers that are still to come. done is called for each answer without an error; the first error ends the pump.
// Requests must not be shared between connections.
func Pump(ctx context.Context, c *Conn, reqs []*Produce, inflight int, done func(*Produce)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, inflight)
	sent := make(chan *Produce, inflight)
	var wg sync.WaitGroup
	var sendErr, readErr error
	wg.Go(func() {
		var buf []byte
		for p := range sent {
			if readErr == nil {
				if readErr = c.Receive(&buf); readErr == nil {
					done(p)
				} else {
					cancel()
				}
			}
			<-slots
		}
	})
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		p := reqs[i%len(reqs)]
		if sendErr = c.Send(p); sendErr != nil {
			break
		}
		sent <- p
	}
	close(sent)
	wg.Wait()
	if sendErr != nil {
		return sendErr
	}
	return readErr
}
