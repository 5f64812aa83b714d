package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Question is put into the root by who wants to know whether a living cluster owns the bucket. The leading controller looks
// at the root every LookEvery and answers. So a cluster that only waits for something to do is known to be alive without
// ever writing a sign of life by itself, and no clock is trusted.
type Question struct {
	ID      string `json:"id"`
	AskedAt int64  `json:"askedAt"`          // ms since 1970, for people
	Answer  string `json:"answer,omitempty"` // who lives
}

// LookEvery is how often the leading controller looks at the root, unless Options say otherwise.
const LookEvery = 15 * time.Second

// Ask puts a question into the root, in place of an earlier one. ErrRootChanged: somebody else was first.
func Ask(ctx context.Context, b bucket.Bucket, root Root, now int64) (Root, error) {
	return SwapRoot(ctx, b, root, func(r *Root) { r.Question = &Question{ID: cluster.NewID(), AskedAt: now} })
}

// guard looks at the root until ctx ends: it answers questions, and returns an *OtherClusterError when the bucket
// belongs to another cluster, or another life of this one, from now on.
func (c *Catalog) guard(ctx context.Context) error {
	for {
		// Not in step with who asks, nor with other clusters in the same store.
		if wait(ctx, c.o.Look-rand.N(c.o.Look/10+1)) != nil {
			return nil
		}
		root, err := ReadRoot(ctx, c.o.Bucket)
		if err != nil {
			continue // the bucket doesn't answer, or shows damage; whoever needs it tells
		}
		if err := root.matches(&c.o); errors.Is(err, ErrOtherCluster) {
			return err
		}
		if q := root.Question; q == nil || q.Answer != "" {
			continue
		}
		answer, cancel := context.WithTimeout(ctx, c.o.Look)
		_, err = SwapRoot(answer, c.o.Bucket, root, func(r *Root) {
			r.Question = &Question{ID: root.Question.ID, AskedAt: root.Question.AskedAt,
				Answer: fmt.Sprintf("%s, at %s", c.o.Node, time.UnixMilli(c.o.Now()).UTC().Format(time.RFC3339))}
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			c.setStatus(func(s *Status) { s.Err = fmt.Errorf("answer who owns the bucket: %w", err) })
		}
	}
}
