package broker

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

// resource names what an alteration is about.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alterConfigs answers AlterConfigs, versions 0 to 2: what isn't named goes back to its default.
func (b *Broker) alterConfigs(ctx context.Context, c *call, req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	count := make(map[resource]int, len(req.Resources))
	for i := range req.Resources {
		count[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	resp.Resources = make([]kmsg.AlterConfigsResponseResource, 0, len(req.Resources))
	for i := range req.Resources {
		in := &req.Resources[i]
		r := resource{in.ResourceType, in.ResourceName}
		ops := make([]cluster.ConfigOp, 0, len(in.Configs))
		err := once(count[r])
		seen := make(map[string]bool, len(in.Configs))
		for _, cfg := range in.Configs {
			if err == nil {
				err = checkEntry(cfg.Name, cfg.Value == nil, seen)
			}
			if err == nil {
				ops = append(ops, cluster.ConfigOp{Name: cfg.Name, Type: cluster.OpSet, Value: *cfg.Value})
			}
		}
		if err == nil {
			err = b.alter(ctx, r, ops, true, req.ValidateOnly)
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		if err != nil {
			out.ErrorCode = b.fail(c, in.ResourceName, err)
			_, out.ErrorMessage = codeAndText(err)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// incrementalAlterConfigs answers IncrementalAlterConfigs, versions 0 and 1.
func (b *Broker) incrementalAlterConfigs(ctx context.Context, c *call, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	count := make(map[resource]int, len(req.Resources))
	for i := range req.Resources {
		count[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		r := resource{in.ResourceType, in.ResourceName}
		ops := make([]cluster.ConfigOp, 0, len(in.Configs))
		err := once(count[r])
		seen := make(map[string]bool, len(in.Configs))
		for _, cfg := range in.Configs {
			if err == nil {
				err = checkEntry(cfg.Name, cfg.Value == nil && cfg.Op != kmsg.IncrementalAlterConfigOpDelete, seen)
			}
			op := cluster.ConfigOp{Name: cfg.Name, Type: cluster.ConfigOpType(cfg.Op)}
			if cfg.Value != nil {
				op.Value = *cfg.Value
			}
			ops = append(ops, op)
		}
		if err == nil {
			err = b.alter(ctx, r, ops, false, req.ValidateOnly)
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		if err != nil {
			out.ErrorCode = b.fail(c, in.ResourceName, err)
			_, out.ErrorMessage = codeAndText(err)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func once(n int) error {
	if n > 1 {
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	return nil
}

// checkEntry holds the rules for one setting of a request.
func checkEntry(name string, null bool, seen map[string]bool) error {
	switch {
	case seen[name]:
		return refuse(kerr.InvalidRequest, "Error due to duplicate config keys: "+name)
	case null:
		return refuse(kerr.InvalidRequest, "Null value not supported for: "+name)
	}
	seen[name] = true
	return nil
}

// alter checks a change and, unless it is only to be checked, makes it.
func (b *Broker) alter(ctx context.Context, r resource, ops []cluster.ConfigOp, replace, dry bool) error {
	img := b.o.Cluster.Image()
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := cluster.ValidTopicName(r.name); err != nil {
			return err
		}
		t, unknown := findTopic(img, false, r.name, [16]byte{})
		if unknown != nil {
			return unknown
		}
		if _, err := cluster.ApplyTopicConfigOps(t.Overrides, ops, replace, img.BrokerDefaults()); err != nil || dry {
			return err
		}
		_, err := b.o.Admin.AlterTopicConfig(ctx, t.ID, ops, replace)
		return err
	case kmsg.ConfigResourceTypeBroker:
		id := cluster.DefaultConfig
		if r.name != "" {
			n, err := strconv.ParseInt(strings.TrimSpace(r.name), 10, 32)
			if err != nil {
				return refuse(kerr.InvalidRequest, fmt.Sprintf("Broker id must be an integer, but it is: %q", r.name))
			}
			id = int32(n)
			if _, ok := img.Broker(id); !ok {
				return refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id %d: no such broker is registered", id))
			}
		}
		if _, err := cluster.ApplyBrokerConfigOps(img.BrokerConfig(id), ops, replace); err != nil || dry {
			return err
		}
		return b.o.Admin.AlterBrokerConfig(ctx, id, ops, replace)
	}
	return refuse(kerr.InvalidRequest, fmt.Sprintf("Unsupported resource type: %d", r.kind))
}
