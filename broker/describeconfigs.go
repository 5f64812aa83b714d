package broker

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

// describeConfigs answers DescribeConfigs, versions 0 to 4, for topics and brokers. Null and empty lists of names both
// mean all settings.
func (b *Broker) describeConfigs(_ context.Context, c *call, req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	img := b.o.Cluster.Image()
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, 0, len(req.Resources))
	for i := range req.Resources {
		in := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		values, err := b.settingsOf(img, in)
		if err != nil {
			out.ErrorCode = b.fail(c, in.ResourceName, err)
			_, out.ErrorMessage = codeAndText(err)
		}
		for k := range values {
			v := &values[k]
			if len(in.ConfigNames) > 0 && !slices.Contains(in.ConfigNames, v.Def.Name) {
				continue
			}
			out.Configs = append(out.Configs, configEntry(v, req))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (b *Broker) settingsOf(img *cluster.Image, in *kmsg.DescribeConfigsRequestResource) ([]cluster.ConfigValue, error) {
	switch in.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := cluster.ValidTopicName(in.ResourceName); err != nil {
			return nil, err
		}
		t, unknown := findTopic(img, false, in.ResourceName, [16]byte{})
		if unknown != nil {
			return nil, unknown
		}
		return cluster.DescribeTopicConfig(img.ConfigLayers(b.o.ID, t)), nil
	case kmsg.ConfigResourceTypeBroker:
		if in.ResourceName == "" {
			return dynamicDefaults(img), nil
		}
		id, err := strconv.ParseInt(in.ResourceName, 10, 32)
		if err != nil {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Broker id must be an integer, but it is: %q", in.ResourceName))
		}
		if int32(id) != b.o.ID {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d or empty string, but received %d", b.o.ID, id))
		}
		return cluster.DescribeBrokerConfig(img.ConfigLayers(b.o.ID, nil)), nil
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Unsupported resource type: %d", in.ResourceType))
}

// dynamicDefaults are the settings that hold for the whole cluster: what was set, and nothing else, as in Kafka.
func dynamicDefaults(img *cluster.Image) []cluster.ConfigValue {
	set := img.BrokerConfig(cluster.DefaultConfig)
	all := cluster.DescribeBrokerConfig(cluster.ConfigLayers{DefaultBroker: set})
	return slices.DeleteFunc(all, func(v cluster.ConfigValue) bool {
		_, ok := set[v.Def.Name]
		return !ok
	})
}

func configEntry(v *cluster.ConfigValue, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	e.Name, e.ReadOnly = v.Def.Name, v.Def.ReadOnly
	e.Source, e.ConfigType = kmsg.ConfigSource(v.Source), kmsg.ConfigType(v.Def.Type)
	e.IsDefault = v.Source == cluster.SourceDefault
	e.IsSensitive = v.Def.Type == cluster.TypePassword
	if !e.IsSensitive {
		e.Value = ptr(v.Value)
	}
	if req.IncludeSynonyms {
		for _, s := range v.Synonyms {
			y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			y.Name, y.Source = s.Name, kmsg.ConfigSource(s.Source)
			if !e.IsSensitive {
				y.Value = ptr(s.Value)
			}
			e.ConfigSynonyms = append(e.ConfigSynonyms, y)
		}
	}
	if req.IncludeDocumentation {
		e.Documentation = ptr(v.Def.Doc)
	}
	return e
}
