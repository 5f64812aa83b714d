package cluster

import (
	"fmt"
	"strings"
)

// MaxTopicName is the longest topic name, in bytes.
const MaxTopicName = 249

// ValidTopicName checks a name by Kafka's rules: 1 to 249 of [a-zA-Z0-9._-], not
// "." or "..". The error wraps ErrInvalidTopicName and has Kafka's text.
func ValidTopicName(name string) error {
	switch {
	case name == "":
		return &nameError{"the empty string is not allowed"}
	case name == "." || name == "..":
		return &nameError{"'" + name + "' is not allowed"}
	case len(name) > MaxTopicName:
		return &nameError{fmt.Sprintf("the length of '%s' is longer than the max allowed length %d", clip(name), MaxTopicName)}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return &nameError{fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
				strings.ToValidUTF8(name, "?"))}
		}
	}
	return nil
}

// nameError has Kafka's words.
type nameError struct{ msg string }

func (e *nameError) Error() string { return "Topic name is invalid: " + e.msg }
func (e *nameError) Unwrap() error { return ErrInvalidTopicName }

// foldName maps names that collide in Kafka (they differ in '.' and '_' only)
// to one key, so that etcd's create-only put refuses the second one.
func foldName(name string) string { return strings.ReplaceAll(name, ".", "_") }
