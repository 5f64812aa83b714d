package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// coordinatorPatience is how long a command waits for group coordinators that load their state: after a start, a failover or a move.
// coordinatorPause is the time between two questions.
const (
	coordinatorPatience = 15 * time.Second
	coordinatorPause    = 200 * time.Millisecond
)

// coordinated asks until the coordinators are there to answer. The client asks again by itself for some requests and a few times only.
func coordinated[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	asking := time.Now()
	for {
		answer, err := ask(ctx)
		loading := errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.NotCoordinator)
		if !loading || time.Since(asking) > coordinatorPatience || sleep(ctx, coordinatorPause) != nil {
			return answer, err
		}
	}
}
