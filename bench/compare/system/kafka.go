package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/process"
)

// kafkaJVM are the flags that Kafka's own scripts start a broker with.
var kafkaJVM = []string{
	"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
}

// kafkaKind is a kind of Kafka node.
type kafkaKind struct {
	pom      string            // what it runs
	settings map[string]string // of the server, beside kafkaDefaults
}

func init() {
	register(kafkaSystem(System{Name: "kafka", Version: "4.4.0", Durability: PageCache}, kafkaKind{pom: "kafka"}))
	register(kafkaSystem(System{Name: "kafka-fsync", Version: "4.4.0", Durability: Fsync}, kafkaKind{
		pom: "kafka", settings: map[string]string{"log.flush.interval.messages": "1"},
	}))
}

// kafkaSystem completes a system that is Kafka.
func kafkaSystem(s System, k kafkaKind) System {
	s.Protocol = load.Kafka
	s.Settings = append(s.Settings,
		"one node, broker and controller in one process (KRaft), with the settings of the server.properties that it comes with",
		"JVM: "+strings.Join(kafkaJVM, " ")+", as its scripts have it; how many threads collect and compile is the JVM's choice for the processors that it is pinned to")
	for _, key := range slices.Sorted(maps.Keys(k.settings)) {
		s.Settings = append(s.Settings, key+"="+k.settings[key])
	}
	s.Install = func(ctx context.Context, say func(string)) error {
		if _, err := exec.LookPath("java"); err != nil {
			return fmt.Errorf("Kafka needs Java 17 or later: install it so that the program java is found: %w", err)
		}
		_, err := mavenJars(ctx, k.pom, say)
		return err
	}
	s.Start = func(ctx context.Context, p Place) (*Running, error) { return startKafka(ctx, p, k) }
	return s
}

// kafkaDefaults are the settings of the server.properties that Kafka comes with, but for addresses and folders.
var kafkaDefaults = map[string]string{
	"process.roles":                                    "broker,controller",
	"node.id":                                          "1",
	"controller.listener.names":                        "CONTROLLER",
	"inter.broker.listener.name":                       "PLAINTEXT",
	"num.network.threads":                              "3",
	"num.io.threads":                                   "8",
	"socket.send.buffer.bytes":                         "102400",
	"socket.receive.buffer.bytes":                      "102400",
	"socket.request.max.bytes":                         "104857600",
	"num.partitions":                                   "1",
	"log.retention.hours":                              "168",
	"log.segment.bytes":                                "1073741824",
	"num.recovery.threads.per.data.dir":                "1",
	"log.retention.check.interval.ms":                  "300000",
	"offsets.topic.replication.factor":                 "1",
	"share.coordinator.state.topic.replication.factor": "1",
	"share.coordinator.state.topic.min.isr":            "1",
	"transaction.state.log.replication.factor":         "1",
	"transaction.state.log.min.isr":                    "1",
}

// kafkaLogging writes warnings to standard output, which is cheaper than what Kafka comes with.
const kafkaLogging = `rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
`

// startKafka formats a node's storage if it is new, and starts it.
func startKafka(ctx context.Context, p Place, k kafkaKind) (*Running, error) {
	libs, err := mavenJars(ctx, k.pom, func(string) {})
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	controller, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(p.Dir, "log")
	settings := maps.Clone(kafkaDefaults)
	maps.Copy(settings, k.settings)
	maps.Copy(settings, map[string]string{
		"listeners":                "PLAINTEXT://" + address + ",CONTROLLER://" + controller,
		"advertised.listeners":     "PLAINTEXT://" + address,
		"controller.quorum.voters": "1@" + controller,
		"log.dirs":                 logs,
	})
	for _, arg := range p.Args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("setting %q of Kafka: want key=value", arg)
		}
		settings[key] = value
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", key, settings[key])
	}
	properties, logging := filepath.Join(p.Dir, "server.properties"), filepath.Join(p.Dir, "log4j2.properties")
	err = errors.Join(os.MkdirAll(p.Dir, 0o755), os.WriteFile(properties, []byte(text.String()), 0o644), os.WriteFile(logging, []byte(kafkaLogging), 0o644))
	if err != nil {
		return nil, err
	}
	java := func(class string, args ...string) process.Command {
		flags := append(slices.Clone(kafkaJVM), "-Dlog4j2.configurationFile="+logging, "-cp", filepath.Join(libs, "*"), class)
		return process.Command{Path: "java", Args: append(flags, args...), Log: p.Dir + ".log", CPUs: p.CPUs}
	}
	if _, err := os.Stat(filepath.Join(logs, "meta.properties")); errors.Is(err, os.ErrNotExist) {
		if err := formatKafka(ctx, java, properties); err != nil {
			return nil, err
		}
	}
	child, err := process.Launch(java("kafka.Kafka", properties))
	if err != nil {
		return nil, err
	}
	if err := awaitKafka(ctx, child, address); err != nil {
		return nil, errors.Join(err, child.Kill())
	}
	return &Running{Address: address, PIDs: child.PIDs, Stop: child.Stop, Kill: child.Kill}, nil
}

// kafkaCluster is any cluster id.
const kafkaCluster = "dGllcmJyb2tlci1iZW5jaA"

func formatKafka(ctx context.Context, java func(class string, args ...string) process.Command, properties string) error {
	child, err := process.Launch(java("kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c", properties))
	if err != nil {
		return err
	}
	select {
	case <-child.Exited():
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), child.Kill())
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(properties), "log", "meta.properties")); err != nil {
		return fmt.Errorf("format Kafka's storage: %w: %w", child.Ended(), err)
	}
	return child.Kill()
}
