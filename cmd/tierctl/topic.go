package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopic(g *globals) *cobra.Command {
	return group("topic", "Manage topics",
		`Manages topics through a broker, and moves the line between hot (local commit
log) and cold (bucket).`,
		`  tierctl topic list
  tierctl topic create audit --partitions 6 --config retention.ms=-1 --config tierbroker.durability=sync
  tierctl topic describe audit
  tierctl topic roll audit`,
		newTopicList(g), newTopicDescribe(g), newTopicCreate(g), newTopicAlter(g), newTopicDelete(g),
		newTopicMove(g, rollAction), newTopicMove(g, evictAction))
}

// kadm opens an admin client; done closes it.
func (g *globals) kadm() (*kadm.Client, func(), error) {
	client, err := g.kafka()
	if err != nil {
		return nil, nil, err
	}
	return kadm.NewClient(client), client.Close, nil
}

// parsePairs splits KEY=VALUE arguments.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("--%s %q is not KEY=VALUE", flag, p)
		}
		if _, dup := m[k]; dup {
			return nil, usagef("--%s gives %s twice", flag, k)
		}
		m[k] = v
	}
	return m, nil
}

// kafkaError joins the name of a protocol error with the broker's own words, which
// say more.
func kafkaError(err error, message string) error {
	var e *kerr.Error
	if message == "" || !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s (%w)", strings.TrimSuffix(message, "."), named{e})
}

// named is a protocol error that prints as its name alone.
type named struct{ e *kerr.Error }

func (n named) Error() string { return n.e.Message }
