package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroup(g *globals) *cobra.Command {
	return group("group", "Manage consumer groups",
		`Shows who consumes what and how far behind, and moves a group's offsets.`,
		`  tierctl group list
  tierctl group describe billing
  tierctl group reset billing --to 2015-07-29
  tierctl group reset billing --to 2015-07-29 --apply
  tierctl group delete billing`,
		newGroupList(g), newGroupDescribe(g), newGroupReset(g), newGroupDelete(g))
}

// groupInfo is a group as its coordinator describes it, whatever its protocol.
type groupInfo struct {
	Group       string        `json:"group"`
	Type        string        `json:"type"` // classic or consumer
	State       string        `json:"state"`
	Assignor    string        `json:"assignor,omitempty"`
	Coordinator int32         `json:"coordinator"`
	Members     []groupMember `json:"members"`
}

type groupMember struct {
	ID         string             `json:"id"`
	InstanceID string             `json:"instance_id,omitempty"`
	ClientID   string             `json:"client_id"`
	Host       string             `json:"host"`
	Assigned   map[string][]int32 `json:"assigned"`
}

// empty says that nobody is in the group, so its offsets may be moved.
func (i *groupInfo) empty() bool { return len(i.Members) == 0 }

// describeGroup asks for a group of either protocol. A group that isn't there has the state Dead.
func describeGroup(ctx context.Context, client *kadm.Client, name string) (*groupInfo, error) {
	newer, err := client.DescribeConsumerGroups(ctx, name)
	if err == nil {
		if d, ok := newer[name]; ok && d.Err == nil {
			return fromConsumerGroup(d), nil
		} else if ok && !errors.Is(d.Err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("describe group %s: %w", name, d.Err)
		}
	}
	older, err := client.DescribeGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	d, ok := older[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("describe group %s: no answer", name)
	case errors.Is(d.Err, kerr.GroupIDNotFound):
		return &groupInfo{Group: name, Type: "classic", State: "Dead", Members: []groupMember{}}, nil
	case d.Err != nil:
		return nil, fmt.Errorf("describe group %s: %w", name, kafkaError(d.Err, d.ErrMessage))
	}
	return fromClassicGroup(d), nil
}

func fromConsumerGroup(d kadm.DescribedConsumerGroup) *groupInfo {
	i := &groupInfo{Group: d.Group, Type: "consumer", State: d.State, Assignor: d.AssignorName, Coordinator: d.Coordinator.NodeID, Members: []groupMember{}}
	for _, m := range d.Members {
		x := groupMember{ID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Assigned: map[string][]int32{}}
		if m.InstanceID != nil {
			x.InstanceID = *m.InstanceID
		}
		for topic, ps := range m.Assignment {
			for p := range ps {
				x.Assigned[topic] = append(x.Assigned[topic], p)
			}
		}
		i.Members = append(i.Members, x)
	}
	return i
}

func fromClassicGroup(d kadm.DescribedGroup) *groupInfo {
	i := &groupInfo{Group: d.Group, Type: "classic", State: d.State, Assignor: d.Protocol, Coordinator: d.Coordinator.NodeID, Members: []groupMember{}}
	for _, m := range d.Members {
		x := groupMember{ID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Assigned: map[string][]int32{}}
		if m.InstanceID != nil {
			x.InstanceID = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				x.Assigned[t.Topic] = append(x.Assigned[t.Topic], t.Partitions...)
			}
		}
		i.Members = append(i.Members, x)
	}
	return i
}
