package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// EnvPrefix begins the name of every variable.
const EnvPrefix = "TIERBROKER_"

// Input is where Load looks for values.
type Input struct {
	// Flags holds the flags that were given, by name without dashes.
	Flags map[string]string
	// Env holds NAME=value strings, as os.Environ returns them.
	Env []string
	// File is the path of a YAML file; "" means none.
	File string
	// CheckKafka, when set, judges each entry of kafka-config. Those settings
	// belong to a higher floor than this package, so the caller lends the check.
	CheckKafka func(key, value string) error
	// CheckBucket, when set, judges the bucket's URL, for the same reason; an
	// empty one isn't asked about.
	CheckBucket func(url string) error
}

// Fault is one thing that is wrong.
type Fault struct {
	Where   string // FILE:LINE, $VARIABLE, --flag, or "default"
	Name    string // name of the setting, "" when it is no setting's fault
	Message string
}

// String renders the fault in one line.
func (f Fault) String() string {
	var parts []string
	if f.Where != "" && f.Where != "default" {
		parts = append(parts, f.Where)
	}
	if f.Name != "" {
		parts = append(parts, f.Name)
	}
	return strings.Join(append(parts, f.Message), ": ")
}

// Faults is the error that Load returns: everything that is wrong, in the order
// file, environment, flags.
type Faults []Fault

// Error lists the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Load collects the values of all settings. Its error is always a [Faults].
func Load(in Input) (*Config, error) {
	l := loader{in: in, c: &Config{sources: make(map[string]string)}}
	for i := range Settings {
		s := &Settings[i]
		if s.Default == "" && s.check != nil {
			continue
		}
		if err := l.store(s, s.Default); err != nil {
			l.fault("", s.Name, "default: "+err.Error())
		}
	}
	if in.File != "" {
		l.file(in.File)
	}
	l.env(in.Env)
	l.flags(in.Flags)
	l.kafka()
	l.bucket()
	l.cross()
	if len(l.faults) > 0 {
		return nil, Faults(l.faults)
	}
	return l.c, nil
}

type loader struct {
	in         Input
	c          *Config
	faults     []Fault
	kafkaLines map[string]string // place of each entry of kafka-config
}

func (l *loader) fault(where, name, msg string) {
	l.faults = append(l.faults, Fault{Where: where, Name: name, Message: msg})
}

// store keeps an earlier, lower value when v is bad, so that cross checks and
// later sources aren't misled.
func (l *loader) store(s *Setting, v string) error {
	before := *l.c
	if err := s.set(l.c, v); err != nil {
		*l.c = before
		return err
	}
	return nil
}

func (l *loader) apply(where, name, v string) {
	s, ok := Lookup(name)
	if !ok {
		l.fault(where, "", unknown("setting", name))
		return
	}
	if err := l.store(s, v); err != nil {
		l.fault(where, name, err.Error())
		return
	}
	l.c.sources[name] = where
}

func unknown(what, name string) string {
	msg := fmt.Sprintf("unknown %s %q", what, name)
	names := make([]string, len(Settings))
	for i := range Settings {
		names[i] = Settings[i].Name
	}
	if near := nearest(strings.ReplaceAll(strings.ToLower(name), "_", "-"), names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return msg
}

func (l *loader) file(path string) {
	data, err := readFile(path)
	if err != nil {
		l.fault("", "", "can't read the configuration file: "+err.Error())
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		l.fault(path, "", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if len(doc.Content) == 0 {
		return // an empty file sets nothing
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		l.fault(at(path, root), "", "expected lines of the form \"name: value\"")
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, val := root.Content[i], root.Content[i+1]
		if first, dup := seen[key.Value]; dup {
			l.fault(at(path, key), key.Value, fmt.Sprintf("set a second time; first in line %d", first))
			continue
		}
		seen[key.Value] = key.Line
		l.fileValue(path, key, val)
	}
}

func (l *loader) fileValue(path string, key, val *yaml.Node) {
	for val.Kind == yaml.AliasNode {
		val = val.Alias
	}
	s, ok := Lookup(key.Value)
	if !ok {
		l.fault(at(path, key), "", unknown("setting", key.Value))
		return
	}
	switch {
	case val.Kind == yaml.ScalarNode && s.Kind != KindMap:
		v := val.Value
		if val.Tag == "!!null" {
			v = ""
		}
		l.apply(at(path, val), key.Value, v)
	case val.Kind == yaml.SequenceNode && s.Kind == KindList:
		items := make([]string, 0, len(val.Content))
		for _, item := range val.Content {
			if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
				l.fault(at(path, item), key.Value, "items must be plain words")
				return
			}
			items = append(items, item.Value)
		}
		l.apply(at(path, val), key.Value, strings.Join(items, ","))
	case s.Kind == KindMap && (val.Kind == yaml.MappingNode || val.Tag == "!!null"):
		l.fileMap(path, s, val)
	default:
		l.fault(at(path, val), key.Value, fmt.Sprintf("expected a %s", s.Kind))
	}
}

func (l *loader) fileMap(path string, s *Setting, val *yaml.Node) {
	m, lines := make(map[string]string), make(map[string]string)
	for i := 0; i+1 < len(val.Content); i += 2 {
		key, item := val.Content[i], val.Content[i+1]
		for item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.ScalarNode {
			l.fault(at(path, item), s.Name, fmt.Sprintf("%s must have a plain value", key.Value))
			continue
		}
		if _, dup := m[key.Value]; dup {
			l.fault(at(path, key), s.Name, fmt.Sprintf("%s is given twice", key.Value))
			continue
		}
		m[key.Value] = item.Value
		lines[key.Value] = at(path, item)
	}
	if f, ok := s.field(l.c).(*map[string]string); ok {
		*f = m
	}
	if s.Name == "kafka-config" {
		l.kafkaLines = lines
	}
	l.c.sources[s.Name] = at(path, val)
}

// injected matches the variables that Kubernetes sets in every container for a
// service whose name begins with "tierbroker".
var injected = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?$`)

func (l *loader) env(env []string) {
	env = slices.Clone(env)
	slices.Sort(env) // so that faults come in a stable order
	for _, kv := range env {
		name, v, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, EnvPrefix) || injected.MatchString("_"+strings.TrimPrefix(name, EnvPrefix)) {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), "_", "-")
		if key == "config" || strings.HasPrefix(key, "test-") {
			continue // the path of the file itself, which the caller reads; switches of test suites
		}
		if key == "kafka-config" {
			l.kafkaLines = nil
		}
		l.apply("$"+name, key, v)
	}
}

func (l *loader) flags(flags map[string]string) {
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		l.apply("--"+name, name, flags[name])
	}
}

// kafka judges kafka-config, wherever it came from.
func (l *loader) kafka() {
	if l.in.CheckKafka == nil {
		return
	}
	var found []Fault
	for key, v := range l.c.KafkaConfig {
		err := l.in.CheckKafka(key, v)
		if err == nil {
			continue
		}
		where := cmp.Or(l.kafkaLines[key], l.c.Source("kafka-config"))
		found = append(found, Fault{Where: where, Name: "kafka-config", Message: err.Error()})
	}
	slices.SortFunc(found, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(len(a.Where), len(b.Where)), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Message, b.Message))
	})
	l.faults = append(l.faults, found...)
}

// bucket judges the bucket's URL, wherever it came from.
func (l *loader) bucket() {
	if l.in.CheckBucket == nil || l.c.Bucket == "" {
		return
	}
	if err := l.in.CheckBucket(l.c.Bucket); err != nil {
		l.fault(l.c.Source("bucket"), "bucket", err.Error())
	}
}

// cross adds what is wrong between settings, but nothing about a setting that has
// a fault of its own: its value is not what the operator wrote.
func (l *loader) cross() {
	faulty := make(map[string]bool)
	for _, f := range l.faults {
		faulty[f.Name] = true
	}
	for _, f := range l.c.crossCheck() {
		if !faulty[f.Name] {
			l.faults = append(l.faults, f)
		}
	}
}

func at(path string, n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) }

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, errors.New(path + " is larger than 1 MiB")
	}
	return data, nil
}
