package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaRemote lets segments move to another folder of the same disk. It looks for segments to move, and to drop, every second instead of
// every 30 s and 5 min, so that a benchmark needn't wait for it.
var kafkaRemote = map[string]string{
	"remote.log.storage.system.enable":                         "true",
	"remote.log.storage.manager.class.name":                    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
	"remote.log.metadata.manager.listener.name":                "PLAINTEXT",
	"rlmm.config.remote.log.metadata.topic.replication.factor": "1",
	"remote.log.manager.task.interval.ms":                      "1000",
	"log.retention.check.interval.ms":                          "1000",
}

func init() {
	k := kafkaKind{pom: "kafka-tiered", settings: kafkaRemote}
	s := kafkaSystem(System{
		Name: "kafka-tiered", Version: "4.3.1", Durability: PageCache, Tiered: true,
		Settings: []string{
			"its store is the one over files of Kafka's own tests, on the same disk: what is old is read through all of its tiered storage, but over no network",
			"4.3.1, the last whose test jar is to be had everywhere",
		},
		TopicConfigs: map[string]string{"remote.storage.enable": "true", "segment.bytes": "16777216"},
	}, k)
	s.Start = func(ctx context.Context, p Place) (*Running, error) {
		k := kafkaKind{pom: k.pom, settings: maps.Clone(k.settings)}
		k.settings["rsm.config.dir"] = filepath.Join(p.Dir, "remote")
		if err := os.MkdirAll(k.settings["rsm.config.dir"], 0o755); err != nil {
			return nil, err
		}
		r, err := startKafka(ctx, p, k)
		if err != nil {
			return nil, err
		}
		r.Tier = func(ctx context.Context, topic string) error {
			return tierKafka(ctx, r.Address, filepath.Join(p.Dir, "log"), topic)
		}
		return r, nil
	}
	register(s)
}

// tierKafka makes a topic keep as little as it can on its own disk, and waits until all but the segment that is written has moved.
func tierKafka(ctx context.Context, address, logs, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	small := "1"
	answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "local.retention.ms", Value: &small}}, topic)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return fmt.Errorf("settings of %s: %w", topic, a.Err)
		}
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := kafkaLeft(ctx, admin, logs, topic)
		if err == nil && left == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s has not moved: %w: %s", topic, context.Cause(ctx), left), err)
		}
	}
}

// kafkaLeft names a partition with more than one segment on the broker's disk, or with a gap or an overlap between disk and store.
func kafkaLeft(ctx context.Context, admin *kadm.Client, logs, topic string) (string, error) {
	local, err := admin.ListLocalLogStartOffsets(ctx, topic)
	if err != nil {
		return "", err
	}
	tiered, err := admin.ListLatestRemoteOffsets(ctx, topic)
	if err != nil {
		return "", err
	}
	if len(local[topic]) == 0 {
		return "", fmt.Errorf("nothing is known of %s", topic)
	}
	moved := false
	for number, l := range local[topic] {
		t, _ := tiered.Lookup(topic, number)
		if err := errors.Join(l.Err, t.Err); err != nil {
			return "", err
		}
		moved = moved || t.Offset >= 0
		segments, err := filepath.Glob(filepath.Join(logs, topic+"-"+strconv.Itoa(int(number)), "*.log"))
		if err != nil {
			return "", err
		}
		if len(segments) != 1 || t.Offset+1 != l.Offset {
			return fmt.Sprintf("partition %d has %d segments here from offset %d on, and up to %d in the store", number, len(segments), l.Offset, t.Offset), nil
		}
	}
	if !moved {
		return "not one segment is closed", nil
	}
	return "", nil
}
