package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ConfigLayers holds the places a setting may come from, strongest first. Topic
// has names of topic settings, the others of broker settings.
type ConfigLayers struct {
	Topic         map[string]string
	Broker        map[string]string // dynamic, of one broker
	DefaultBroker map[string]string // dynamic, of the whole cluster
	Static        map[string]string // of the process
}

// Merged returns the broker settings with the strongest value of each.
func (l *ConfigLayers) Merged() map[string]string {
	m := make(map[string]string, len(l.Static)+len(l.DefaultBroker)+len(l.Broker))
	maps.Copy(m, l.Static)
	maps.Copy(m, l.DefaultBroker)
	maps.Copy(m, l.Broker)
	return m
}

// ConfigValue is the effective value of one setting.
type ConfigValue struct {
	Def      *ConfigDef
	Value    string
	Source   ConfigSource
	Synonyms []ConfigSynonym // where the value could come from, strongest first
}

// ConfigSynonym is one place that holds a value for a setting.
type ConfigSynonym struct {
	Name, Value string
	Source      ConfigSource
}

// DescribeTopicConfig returns every listed topic setting with its effective value.
func DescribeTopicConfig(l ConfigLayers) []ConfigValue {
	out := make([]ConfigValue, 0, len(TopicConfigDefs))
	for i := range TopicConfigDefs {
		d := &TopicConfigDefs[i]
		if v, own := l.Topic[d.Name]; own || !d.Hidden {
			out = append(out, describe(d, v, own, d.Synonyms, l))
		}
	}
	return out
}

// DescribeBrokerConfig returns every broker setting with its effective value.
func DescribeBrokerConfig(l ConfigLayers) []ConfigValue {
	out := make([]ConfigValue, 0, len(BrokerConfigDefs))
	for i := range BrokerConfigDefs {
		d := &BrokerConfigDefs[i]
		syn := append([]Synonym{{Name: d.Name}}, d.Synonyms...)
		out = append(out, describe(d, "", false, syn, l))
	}
	return out
}

func describe(d *ConfigDef, own string, hasOwn bool, synonyms []Synonym, l ConfigLayers) ConfigValue {
	v := ConfigValue{Def: d, Value: d.Default, Source: SourceDefault}
	if hasOwn {
		v.Synonyms = append(v.Synonyms, ConfigSynonym{d.Name, own, SourceTopic})
	}
	layers := [...]struct {
		m map[string]string
		s ConfigSource
	}{{l.Broker, SourceDynamicBroker}, {l.DefaultBroker, SourceDynamicDefaultBroker}, {l.Static, SourceStaticBroker}}
	won := hasOwn
	if hasOwn {
		v.Value, v.Source = own, SourceTopic
	}
	for _, s := range synonyms {
		for _, layer := range layers {
			raw, ok := layer.m[s.Name]
			if !ok {
				continue
			}
			v.Synonyms = append(v.Synonyms, ConfigSynonym{s.Name, raw, layer.s})
			if scaled, ok := s.scale(raw); ok && !won && d.Validate(scaled) == nil {
				v.Value, v.Source, won = scaled, layer.s, true
			}
		}
	}
	name := d.Name
	if len(synonyms) > 0 {
		name = synonyms[0].Name
	}
	v.Synonyms = append(v.Synonyms, ConfigSynonym{name, d.Default, SourceDefault})
	return v
}

// scale converts the value of a synonym into the unit of the setting; false when
// it is no number.
func (s *Synonym) scale(v string) (string, bool) {
	if s.Scale <= 1 {
		return v, true
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil {
		return "", false
	}
	if n < 0 {
		return strconv.FormatInt(n, 10), true // -1 stays "for ever"
	}
	if n > (1<<63-1)/s.Scale {
		return longMax, true
	}
	return strconv.FormatInt(n*s.Scale, 10), true
}

// getter finds typed values; what does not parse falls through to the next place.
type getter struct {
	overrides, broker map[string]string
}

func (g *getter) str(name string) string {
	d := topicDefs[name]
	if v, ok := g.overrides[name]; ok && d.Validate(v) == nil {
		return strings.TrimSpace(v)
	}
	for i := range d.Synonyms {
		raw, ok := g.broker[d.Synonyms[i].Name]
		if !ok {
			continue
		}
		if v, ok := d.Synonyms[i].scale(raw); ok && d.Validate(v) == nil {
			return strings.TrimSpace(v)
		}
	}
	return d.Default
}

func (g *getter) num(name string) int64 {
	n, err := strconv.ParseInt(g.str(name), 10, 64)
	if err != nil {
		return 0 // unreachable: str returns validated values and defaults only
	}
	return n
}

func (g *getter) float(name string) float64 {
	f, err := strconv.ParseFloat(g.str(name), 64)
	if err != nil {
		return 0 // unreachable as in num
	}
	return f
}

// checkValues checks settings one by one, in the order of their names.
func checkValues(defs map[string]*ConfigDef, kind string, values map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		d := defs[k]
		if d == nil {
			return &ConfigError{Key: k, Value: values[k], Msg: fmt.Sprintf("Unknown %s config name: %s", kind, clip(k))}
		}
		if err := d.Validate(values[k]); err != nil {
			return err
		}
	}
	return nil
}

// ConfigOpType is what an incremental change does; the numbers are those of
// IncrementalAlterConfigs.
type ConfigOpType int8

// The operations of IncrementalAlterConfigs.
const (
	OpSet      ConfigOpType = 0
	OpDelete   ConfigOpType = 1
	OpAppend   ConfigOpType = 2
	OpSubtract ConfigOpType = 3
)

// ConfigOp changes one setting.
type ConfigOp struct {
	Name  string
	Type  ConfigOpType
	Value string
}

// SetConfigs turns name/value pairs into operations; nil values delete. It is
// how the old AlterConfigs is expressed (with replace).
func SetConfigs(values map[string]*string) []ConfigOp {
	ops := make([]ConfigOp, 0, len(values))
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if v := values[k]; v != nil {
			ops = append(ops, ConfigOp{Name: k, Type: OpSet, Value: *v})
		} else {
			ops = append(ops, ConfigOp{Name: k, Type: OpDelete})
		}
	}
	return ops
}

// ApplyTopicConfigOps returns the overrides after the operations, checked; current
// stays as it is. With replace, what no operation names is dropped. It is what a
// dry run calls. The error is a *ConfigError.
func ApplyTopicConfigOps(current map[string]string, ops []ConfigOp, replace bool, brokerDefaults map[string]string) (map[string]string, error) {
	next, err := applyOps(topicDefs, "topic", current, ops, replace, func(d *ConfigDef) string {
		g := getter{broker: brokerDefaults}
		return g.str(d.Name)
	})
	if err != nil {
		return nil, err
	}
	_, err = ParseTopicConfig(next, brokerDefaults)
	return next, err
}

// ApplyBrokerConfigOps is ApplyTopicConfigOps for dynamic broker settings.
func ApplyBrokerConfigOps(current map[string]string, ops []ConfigOp, replace bool) (map[string]string, error) {
	for _, op := range ops {
		if d := brokerDefs[op.Name]; d != nil && d.ReadOnly {
			return nil, &ConfigError{Key: op.Name, Value: op.Value,
				Msg: fmt.Sprintf("Cannot update these configs dynamically: Set(%s)", op.Name)}
		}
	}
	next, err := applyOps(brokerDefs, "broker", current, ops, replace, func(d *ConfigDef) string { return d.Default })
	if err != nil {
		return nil, err
	}
	return next, checkValues(brokerDefs, "broker", next)
}

func applyOps(defs map[string]*ConfigDef, kind string, current map[string]string, ops []ConfigOp, replace bool,
	fallback func(*ConfigDef) string) (map[string]string, error) {
	next := map[string]string{}
	if !replace {
		maps.Copy(next, current)
	}
	for _, op := range ops {
		d := defs[op.Name]
		if d == nil && op.Type == OpDelete {
			delete(next, op.Name) // what an older version stored can be removed
			continue
		}
		if d == nil {
			return nil, &ConfigError{Key: op.Name, Value: op.Value,
				Msg: fmt.Sprintf("Unknown %s config name: %s", kind, clip(op.Name))}
		}
		switch op.Type {
		case OpSet:
			next[op.Name] = op.Value
		case OpDelete:
			delete(next, op.Name)
		case OpAppend, OpSubtract:
			if d.Type != TypeList {
				return nil, &ConfigError{Key: op.Name, Value: op.Value,
					Msg: fmt.Sprintf("Can't %s to key %s because its type is not LIST.", opVerb(op.Type), op.Name)}
			}
			old, ok := next[op.Name]
			if !ok {
				old = fallback(d)
			}
			next[op.Name] = editList(old, op)
		default:
			return nil, &ConfigError{Key: op.Name, Value: op.Value,
				Msg: fmt.Sprintf("Unknown operation type %d for configuration %s", op.Type, op.Name)}
		}
	}
	return next, nil
}

func opVerb(t ConfigOpType) string {
	if t == OpAppend {
		return "append"
	}
	return "subtract"
}

func editList(old string, op ConfigOp) string {
	list := SplitList(old)
	for _, e := range SplitList(op.Value) {
		i := slices.Index(list, e)
		switch {
		case op.Type == OpAppend && i < 0:
			list = append(list, e)
		case op.Type == OpSubtract && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	return strings.Join(list, ",")
}
