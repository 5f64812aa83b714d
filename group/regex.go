package group

import (
	"errors"
	"regexp"
	"slices"
)

// Patterns are RE2, as in Kafka. Their size and the number of them that the machine keeps compiled are bounded.
const (
	maxPattern  = 4096 // bytes
	maxPatterns = 1000
)

var errPatternLength = errors.New("it is longer than 4096 bytes")

func compilePattern(p string) (*regexp.Regexp, error) {
	if len(p) > maxPattern {
		return nil, errPatternLength
	}
	re, err := regexp.Compile(p)
	if err != nil {
		return nil, err
	}
	re.Longest() // so that a match of a whole name is found if there is one
	return re, nil
}

// matches is the topics that a pattern matches as whole names. All groups share the work.
type matches struct {
	version uint64 // Machine.topicsVersion
	topics  []string
}

func (m *Machine) match(pattern string) []string {
	if got, ok := m.patterns[pattern]; ok && got.version == m.topicsVersion {
		return got.topics
	}
	topics := []string{}
	if re, err := compilePattern(pattern); err == nil {
		for t := range m.topics.All() {
			if loc := re.FindStringIndex(t.Name); loc != nil && loc[0] == 0 && loc[1] == len(t.Name) {
				topics = append(topics, t.Name)
			}
		}
	}
	slices.Sort(topics)
	if m.patterns == nil || len(m.patterns) >= maxPatterns {
		m.patterns = map[string]matches{}
	}
	m.patterns[pattern] = matches{m.topicsVersion, topics}
	return topics
}

// refreshRegexes brings the group's patterns up to date with the topics and drops those nobody uses.
func (m *Machine) refreshRegexes(c *consumer) {
	used := map[string]bool{}
	for _, mem := range c.members {
		if mem.meta.regex != nil {
			used[*mem.meta.regex] = true
		}
	}
	for _, p := range sortedKeys(c.regexes) {
		if !used[p] {
			m.emitKey(kindRegex, nil, c.g.id, p)
		}
	}
	for _, p := range sortedKeys(used) {
		topics := m.match(p)
		old := c.regexes[p]
		if old != nil && slices.Equal(old.topics, topics) {
			continue
		}
		next := regex{topics: topics, version: 1, timestamp: m.now.wall}
		if old != nil {
			next.version = old.version + 1
		}
		m.emitKey(kindRegex, next.append(), c.g.id, p)
	}
}
