package cluster

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ConfigType is the type of a setting; the numbers are those of DescribeConfigs.
type ConfigType int8

// The types of Kafka's DescribeConfigs.
const (
	TypeBoolean  ConfigType = 1
	TypeString   ConfigType = 2
	TypeInt      ConfigType = 3
	TypeShort    ConfigType = 4
	TypeLong     ConfigType = 5
	TypeDouble   ConfigType = 6
	TypeList     ConfigType = 7
	TypeClass    ConfigType = 8
	TypePassword ConfigType = 9
)

// String returns Kafka's name of the type.
func (t ConfigType) String() string {
	names := [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}
	if t < 0 || int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// ConfigSource says where a value comes from; the numbers are those of DescribeConfigs.
type ConfigSource int8

// The sources of Kafka's DescribeConfigs.
const (
	SourceUnknown              ConfigSource = 0
	SourceTopic                ConfigSource = 1
	SourceDynamicBroker        ConfigSource = 2
	SourceDynamicDefaultBroker ConfigSource = 3
	SourceStaticBroker         ConfigSource = 4
	SourceDefault              ConfigSource = 5
)

// ConfigDef describes one setting.
type ConfigDef struct {
	Name    string
	Type    ConfigType
	Default string
	Doc     string
	// ReadOnly settings can not be altered while the broker runs.
	ReadOnly bool
	// Hidden settings are accepted and not listed.
	Hidden bool
	// Synonyms are broker settings this one falls back to, strongest first.
	// Of a broker setting: other broker settings.
	Synonyms []Synonym
	// check returns what is wrong with a well-typed value, in Kafka's words.
	check func(v string) string
}

// Synonym is a broker setting that stands behind another one.
type Synonym struct {
	Name string
	// Scale multiplies its value (log.retention.hours to ms); 0 and 1: as it is.
	Scale int64
}

// Validate checks a value's type and range. The error is a *ConfigError.
func (d *ConfigDef) Validate(v string) error {
	if msg := d.checkType(v); msg != "" {
		return d.bad(v, msg)
	}
	if d.check != nil {
		if msg := d.check(strings.TrimSpace(v)); msg != "" {
			return d.bad(v, msg)
		}
	}
	return nil
}

func (d *ConfigDef) bad(v, msg string) *ConfigError {
	return &ConfigError{Key: d.Name, Value: v,
		Msg: fmt.Sprintf("Invalid value %s for configuration %s: %s", clip(v), d.Name, msg)}
}

// clip keeps a hostile value from filling logs and responses.
func clip(v string) string {
	const most = 200
	if len(v) > most {
		return strings.ToValidUTF8(v[:most], "") + "..."
	}
	return v
}

func (d *ConfigDef) checkType(v string) string {
	v = strings.TrimSpace(v)
	var err error
	switch d.Type {
	case TypeBoolean:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return "Expected value to be either true or false"
		}
	case TypeShort:
		_, err = strconv.ParseInt(v, 10, 16)
	case TypeInt:
		_, err = strconv.ParseInt(v, 10, 32)
	case TypeLong:
		_, err = strconv.ParseInt(v, 10, 64)
	case TypeDouble:
		var f float64
		if f, err = strconv.ParseFloat(v, 64); err == nil && math.IsNaN(f) {
			return "Not a number of type " + d.Type.String()
		}
	case TypeString, TypeList, TypeClass, TypePassword:
	}
	if err != nil {
		return "Not a number of type " + d.Type.String()
	}
	return ""
}

func atLeast(least int64) func(string) string {
	return func(v string) string {
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < least {
			return fmt.Sprintf("Value must be at least %d", least)
		}
		return ""
	}
}

func between(least, most int64) func(string) string {
	return func(v string) string {
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil || n < least:
			return fmt.Sprintf("Value must be at least %d", least)
		case n > most:
			return fmt.Sprintf("Value must be no more than %d", most)
		}
		return ""
	}
}

// levelOr accepts one special value besides a range, as Kafka's compression levels do.
func levelOr(special, least, most int64) func(string) string {
	in := between(least, most)
	return func(v string) string {
		if v == strconv.FormatInt(special, 10) {
			return ""
		}
		return in(v)
	}
}

func ratio(v string) string {
	f, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil || f < 0:
		return "Value must be at least 0"
	case f > 1:
		return "Value must be no more than 1"
	}
	return ""
}

func oneOf(allowed ...string) func(string) string {
	return func(v string) string {
		if slices.Contains(allowed, v) {
			return ""
		}
		return "String must be one of: " + strings.Join(allowed, ", ")
	}
}

func listOf(allowed ...string) func(string) string {
	return func(v string) string {
		seen := map[string]bool{}
		for _, e := range SplitList(v) {
			if !slices.Contains(allowed, e) {
				return "String must be one of: " + strings.Join(allowed, ", ")
			}
			if seen[e] {
				return "Configuration values must not be duplicated."
			}
			seen[e] = true
		}
		return ""
	}
}

// throttled accepts what Kafka's replication throttles accept.
func throttled(v string) string {
	if v == "" || v == "*" {
		return ""
	}
	for _, e := range SplitList(v) {
		p, b, ok := strings.Cut(e, ":")
		_, err1 := strconv.ParseUint(p, 10, 31)
		_, err2 := strconv.ParseUint(b, 10, 31)
		if !ok || err1 != nil || err2 != nil {
			return "Must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
		}
	}
	return ""
}

// SplitList splits a LIST value at commas, as Kafka does: trimmed, an empty
// value has no elements.
func SplitList(v string) []string {
	v = strings.TrimSpace(v)
	if v == "" {
		return nil
	}
	parts := strings.Split(v, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func defsByName(defs []ConfigDef) map[string]*ConfigDef {
	m := make(map[string]*ConfigDef, len(defs))
	for i := range defs {
		m[defs[i].Name] = &defs[i]
	}
	return m
}
