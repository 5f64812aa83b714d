package restore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

// ErrAlive: a living cluster owns the bucket.
var ErrAlive = errors.New("a living cluster owns the bucket")

// Patience is how long a living cluster has to answer: three looks of its controller, and some time for a slow bucket.
const Patience = 3*catalog.LookEvery + 5*time.Second

// Quiet asks whether a living cluster owns the bucket, and waits for patience (0: Patience). ErrAlive says who answered or what has changed
// meanwhile. The plan goes on with the root that holds the question.
func Quiet(ctx context.Context, o Options, p *Plan, patience time.Duration) error {
	o.setDefaults()
	if patience <= 0 {
		patience = Patience
	}
	before, err := fingerprint(ctx, o.Bucket, p.root.Incarnation)
	if err != nil {
		return err
	}
	root, err := catalog.Ask(ctx, o.Bucket, p.root, o.Now())
	if errors.Is(err, catalog.ErrRootChanged) {
		return fmt.Errorf("%w: its root was changed a moment ago", ErrAlive)
	}
	if err != nil {
		return err
	}
	id := root.Question.ID
	began, tick := time.Now(), time.NewTicker(min(time.Second, patience/10+1))
	defer tick.Stop()
	for time.Since(began) < patience {
		o.Progress("wait for an answer of the old cluster", int(time.Since(began).Seconds()), int(patience.Seconds()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if root, err = catalog.ReadRoot(ctx, o.Bucket); err != nil {
			return err
		}
		if err := answered(&root, id); err != nil {
			return err
		}
	}
	after, err := fingerprint(ctx, o.Bucket, p.root.Incarnation)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("%w: heads, WAL streams or snapshots have changed within %v", ErrAlive, patience)
	}
	p.root = root
	return nil
}

// answered looks for an answer to a question.
func answered(root *catalog.Root, id string) error {
	switch q := root.Question; {
	case q == nil || q.ID != id:
		return fmt.Errorf("%w: its root was changed by somebody else", ErrAlive)
	case q.Answer != "":
		return fmt.Errorf("%w: %s", ErrAlive, q.Answer)
	}
	return nil
}

// fingerprint covers what brokers and controllers of a living cluster change.
func fingerprint(ctx context.Context, b bucket.Bucket, incarnation string) ([sha256.Size]byte, error) {
	h := sha256.New()
	var sum [sha256.Size]byte
	for _, prefix := range []string{"head/", tier.WALFolder, "cluster/" + incarnation + "/"} {
		for after := ""; ; {
			page, err := b.List(ctx, bucket.Op{Class: bucket.ClassTool}, prefix, after, bucket.MaxList)
			if err != nil {
				return sum, fmt.Errorf("look for changes: %w", err)
			}
			for _, i := range page.Items {
				fmt.Fprintf(h, "%s %d %s\n", i.Key, i.Size, i.ETag)
			}
			if page.Next == "" {
				break
			}
			after = page.Next
		}
	}
	h.Sum(sum[:0])
	return sum, nil
}
