package main

import (
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/config"
)

func newCheckConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-config",
		Short: "Check the configuration without starting anything",
		Long: `Checks file, environment and flags, lists every fault with its line, and exits
with code 2 if there is one. Without faults it prints every setting, its value
and where that came from. Neither the bucket nor any port is touched.`,
		Example: "  tierbroker check-config --config /etc/tierbroker.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if _, err := bucketURL(c); err != nil {
				return err
			}
			return c.WriteEffective(cmd.OutOrStdout())
		},
	}
	addConfigFlags(cmd)
	return cmd
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit, and what it was built with",
		Example: "  tierbroker version",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), admin.Build("tierbroker", version))
			return err
		},
	}
}

// ownSettings are broker settings of Kafka that have a name of ours.
var ownSettings = map[string]string{
	"advertised.listeners":      "advertise",
	cluster.AutoCreateTopics:    "auto-create-topics",
	"broker.id":                 "broker-id",
	"broker.rack":               "rack",
	"connections.max.idle.ms":   "idle-timeout",
	"fetch.max.bytes":           "fetch-max-bytes",
	"listeners":                 "kafka-listen",
	"log.dir":                   "data-dir",
	"log.dirs":                  "data-dir",
	"max.connections":           "max-connections",
	"node.id":                   "broker-id",
	cluster.NumPartitions:       "num-partitions",
	"process.roles":             "roles",
	"producer.id.expiration.ms": "producer-expiry",
	"socket.request.max.bytes":  "max-request-bytes",
}

// checkKafka judges one entry of kafka-config: the name of a topic setting or of
// a broker setting.
func checkKafka(key, value string) error {
	if own, ok := ownSettings[key]; ok {
		return fmt.Errorf("%s is set by %s", key, own)
	}
	return cluster.CheckSetting(key, value)
}

// staticSettings gives the cluster package the broker settings of this process
// under Kafka's names.
func staticSettings(c *config.Config, host string, port int32) map[string]string {
	listener := fmt.Sprintf("PLAINTEXT://%s", c.KafkaListen)
	m := map[string]string{
		"advertised.listeners":      fmt.Sprintf("PLAINTEXT://%s:%d", host, port),
		cluster.AutoCreateTopics:    fmt.Sprint(c.AutoCreateTopics),
		"broker.id":                 fmt.Sprint(c.BrokerID),
		"connections.max.idle.ms":   fmt.Sprint(c.IdleTimeout.Milliseconds()),
		"fetch.max.bytes":           fmt.Sprint(int64(c.FetchMaxBytes)),
		"listeners":                 listener,
		"log.dir":                   c.DataDir,
		"log.dirs":                  c.DataDir,
		"max.connections":           fmt.Sprint(c.MaxConnections),
		"node.id":                   fmt.Sprint(c.BrokerID),
		cluster.NumPartitions:       fmt.Sprint(c.NumPartitions),
		"process.roles":             strings.Join(c.Roles, ","),
		"producer.id.expiration.ms": fmt.Sprint(c.ProducerExpiry.Milliseconds()),
		"socket.request.max.bytes":  fmt.Sprint(int64(c.MaxRequestBytes)),
	}
	if c.Rack != "" {
		m["broker.rack"] = c.Rack
	}
	maps.Copy(m, c.KafkaConfig)
	return m
}
