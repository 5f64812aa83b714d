package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// migrate takes a living group from the classic protocol to the consumer protocol and back, one
// member at a time, with a crash of a member of the other kind on either way.
func migrate(ctx context.Context, r *groupRun) error {
	join := func(protocol string, n int) func() error {
		return func() error { return r.crew.join(r.program, protocol, "", n) }
	}
	swap := func(protocol string) func() error {
		return func() error {
			if err := r.leave(1); err != nil {
				return err
			}
			return r.crew.join(r.program, protocol, "", 1)
		}
	}
	crash := func() error { r.crash(1); return nil }
	for _, s := range []struct {
		what   string
		change func() error
		kind   string // as Kafka writes it
	}{
		{"3 classic members join", join("classic", 3), "Classic"},
		{"1 of the consumer protocol joins", join("consumer", 1), "Consumer"},
		{"a classic one crashes", crash, "Consumer"},
		{"1 classic member makes room for 1 of the consumer protocol", swap("consumer"), "Consumer"},
		{"the last classic one makes room", swap("consumer"), "Consumer"},
		{"1 classic member joins", join("classic", 1), "Consumer"},
		{"1 of the consumer protocol crashes", crash, "Consumer"},
		{"1 of the consumer protocol makes room for a classic one", swap("classic"), "Consumer"},
		{"the last of the consumer protocol makes room", swap("classic"), "Classic"},
	} {
		if err := r.step(ctx, s.what, s.change); err != nil {
			return err
		}
		kind, err := groupType(ctx, r.cl, r.group)
		if err == nil && kind != s.kind {
			err = fmt.Errorf("the group is of type %q, want %q", kind, s.kind)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// groupType asks the broker for a group's type.
func groupType(ctx context.Context, cl *kgo.Client, group string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, cl)
	if err != nil {
		return "", err
	}
	for _, g := range resp.Groups {
		if g.Group == group {
			return g.GroupType, nil
		}
	}
	return "", fmt.Errorf("group %s is not listed", group)
}
