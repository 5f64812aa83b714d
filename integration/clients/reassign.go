package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// reassign is the name of the cases in which Kafka's tools move partitions of a cluster.
const reassign = "reassign"

// replicas is the form in which Kafka's tools write an assignment.
type replicas struct {
	Version    int               `json:"version"`
	Partitions []replicaOfATopic `json:"partitions"`
}

type replicaOfATopic struct {
	Topic     string  `json:"topic"`
	Partition int     `json:"partition"`
	Replicas  []int32 `json:"replicas"`
}

// runReassign starts two brokers over one bucket and has Kafka's tools move partitions between them.
func runReassign(ctx context.Context, s *suite) {
	begun := time.Now()
	if err := prepareJava(ctx, s); err != nil {
		s.fail(reassign+": setup", err)
		return
	}
	etcd, err := freeAddr()
	if err != nil {
		s.fail(reassign+": setup", err)
		return
	}
	bucket := "file://" + filepath.Join(s.temp, "shared-bucket")
	one, err := startBroker(ctx, s, "one", "--bucket", bucket, "--etcd-listen", etcd)
	if err != nil {
		s.fail(reassign+": first broker", err)
		return
	}
	two, err := startBroker(ctx, s, "two", "--bucket", bucket, "--roles", "broker", "--broker-id", "2", "--etcd-endpoints", "http://"+etcd)
	if err != nil {
		s.fail(reassign+": second broker", errors.Join(err, one.stop(true)))
		return
	}
	before := s.failed
	r := reassigner{java{ctx: ctx, classpath: s.path("java", "target", "dependency", "*"), bootstrap: one.kafka}, s}
	r.run()
	// The second one goes first: the state of both is in the first one.
	for _, b := range []*broker{two, one} {
		s.check(reassign+": a broker stops", func() error { return b.stop(s.failed > before) })
	}
	fmt.Fprintf(s.out, "# %s took %v\n", reassign, time.Since(begun).Round(100*time.Millisecond))
}

type reassigner struct {
	java
	s *suite
}

func (r reassigner) run() {
	topic := r.s.run + "-moved"
	file := filepath.Join(r.s.temp, "reassignment.json")
	var from, to int64
	check := func(what string, f func() error) { r.s.check(reassign+": "+what, f) }
	check("create and fill a topic", func() error {
		if err := r.create(topic, 1); err != nil {
			return err
		}
		from = time.Now().UnixMilli()
		err := r.produce(topic, "none")
		to = time.Now().UnixMilli()
		return err
	})
	var next replicas
	check("--generate", func() (err error) { next, err = r.generate(topic); return err })
	check("--execute with a throttle", func() error {
		data, err := json.Marshal(next)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		return r.says("Successfully started partition reassignment", "--execute", "--throttle", "10000000", "--reassignment-json-file", file)
	})
	check("--verify", func() error { return r.completed(file) })
	check("--list", func() error { return r.says("No partition reassignments found", "--list") })
	check("--cancel of what is done", func() error {
		return r.says("None of the specified partition reassignments are active", "--cancel", "--reassignment-json-file", file)
	})
	check("--execute at a broker that does not exist", func() error {
		next.Partitions[0].Replicas = []int32{9}
		data, err := json.Marshal(next)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		if err := r.says("", "--execute", "--reassignment-json-file", file); err == nil || !strings.Contains(err.Error(), "Unknown broker id 9") {
			return fmt.Errorf("it was not refused: %v", err)
		}
		return nil
	})
	check("every record is at its offset", func() error { return r.consume(topic, 0, from, to) })
	check("leader-election", func() error {
		if _, err := r.tool("", "LeaderElectionCommand", "--bootstrap-server", r.bootstrap, "--election-type", "PREFERRED", "--all-topic-partitions"); err != nil {
			return err
		}
		out, err := r.tool("", "LeaderElectionCommand", "--bootstrap-server", r.bootstrap, "--election-type", "UNCLEAN", "--topic", topic, "--partition", "0")
		if err == nil && !strings.Contains(out, "Valid replica already elected") {
			err = fmt.Errorf("it says %q", lastOf(out))
		}
		return err
	})
}

func (r reassigner) command(args ...string) (string, error) {
	return r.tool("", "reassign.ReassignPartitionsCommand", append([]string{"--bootstrap-server", r.bootstrap}, args...)...)
}

func (r reassigner) says(want string, args ...string) error {
	out, err := r.command(args...)
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("it says %q, without %q", lastOf(out), want)
	}
	return err
}

// generate has the tool tell where a topic's partitions are, and returns an assignment that swaps the brokers.
func (r reassigner) generate(topic string) (replicas, error) {
	var now replicas
	file := filepath.Join(r.s.temp, "topics-to-move.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"version":1,"topics":[{"topic":%q}]}`, topic), 0o600); err != nil {
		return now, err
	}
	out, err := r.command("--generate", "--topics-to-move-json-file", file, "--broker-list", "1,2")
	if err != nil {
		return now, err
	}
	_, rest, found := strings.Cut(out, "Current partition replica assignment\n")
	if !found || !strings.Contains(rest, "Proposed partition reassignment configuration\n") {
		return now, fmt.Errorf("it says %q", lastOf(out))
	}
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&now); err != nil {
		return now, err
	}
	for i := range now.Partitions {
		p := &now.Partitions[i]
		if len(p.Replicas) != 1 || p.Replicas[0] < 1 || p.Replicas[0] > 2 {
			return now, fmt.Errorf("partition %d is at %v", p.Partition, p.Replicas)
		}
		p.Replicas[0] = 3 - p.Replicas[0]
	}
	if len(now.Partitions) != 1 {
		return now, fmt.Errorf("%d partitions", len(now.Partitions))
	}
	return now, nil
}

// completed waits until the tool says that the reassignment of a file is done.
func (r reassigner) completed(file string) error {
	deadline := time.Now().Add(patience)
	for {
		out, err := r.command("--verify", "--reassignment-json-file", file)
		switch {
		case err != nil:
			return err
		case strings.Contains(out, "is completed") && strings.Contains(out, "Clearing broker-level throttles"):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("it says %q", lastOf(out))
		}
	}
}
