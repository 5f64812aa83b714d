package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/process"
)

// rocketJVM are the broker's flags: those of its scripts but for memory, of which they ask 8 GB; it has what Kafka has.
var rocketJVM = []string{
	"-server", "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
	"-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
	// They stop taking records, or throw the oldest away, on a disk that is 85 or 90 % full: theirs and anybody else's files.
	"-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
}

// rocketNameJVM are those of the name server, which does nothing while records flow.
var rocketNameJVM = []string{"-server", "-Xms128m", "-Xmx128m", "-XX:+UseSerialGC"}

func init() {
	register(rocketSystem(System{Name: "rocketmq", Durability: PageCache}, "ASYNC_FLUSH"))
	register(rocketSystem(System{Name: "rocketmq-fsync", Durability: Fsync}, "SYNC_FLUSH"))
}

func rocketSystem(s System, flush string) System {
	s.Version, s.Protocol = "5.5.0", load.RocketMQ
	s.Settings = []string{
		"one broker and one name server; the client batches records of a queue, as Kafka's does",
		"flushDiskType=" + flush,
		rocketPatience + ": a busy broker lets requests wait, as the others do, instead of refusing them after 0.2 and 1 s",
		"autoCreateTopicEnable=false, diskMaxUsedSpaceRatio=95",
		"JVM: " + strings.Join(rocketJVM, " "),
	}
	s.Install = func(ctx context.Context, say func(string)) error {
		if _, err := exec.LookPath("java"); err != nil {
			return fmt.Errorf("RocketMQ needs Java 17 or later: install it so that the program java is found: %w", err)
		}
		_, err := mavenJars(ctx, "rocketmq", say)
		return err
	}
	s.Start = func(ctx context.Context, p Place) (*Running, error) { return startRocket(ctx, p, flush) }
	return s
}

// rocketPatience is how long a request may wait for the broker, and the broker for the disk, in ms.
const rocketPatience = "waitTimeMillsInSendQueue=30000, osPageCacheBusyTimeOutMills=30000"

// rocketBroker is the name of the broker, and of a topic that it has from its start: nobody may want to create one of that name.
const rocketBroker = "tierbroker-bench-broker"

func startRocket(ctx context.Context, p Place, flush string) (*Running, error) {
	libs, err := mavenJars(ctx, "rocketmq", func(string) {})
	if err != nil {
		return nil, err
	}
	names, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	address, settings, err := rocketSettings(p, names, flush)
	if err != nil {
		return nil, err
	}
	_, namesPort, err := net.SplitHostPort(names)
	if err != nil {
		return nil, err
	}
	nameConf, brokerConf := filepath.Join(p.Dir, "namesrv.conf"), filepath.Join(p.Dir, "broker.conf")
	err = errors.Join(os.MkdirAll(p.Dir, 0o755), os.WriteFile(nameConf, []byte("bindAddress=127.0.0.1\nlistenPort="+namesPort+"\n"), 0o644),
		os.WriteFile(brokerConf, []byte(settings), 0o644))
	if err != nil {
		return nil, err
	}
	launch := func(jvm []string, class, conf, log string) (*process.Child, error) {
		args := append([]string{"-Duser.home=" + p.Dir, "-Drocketmq.home.dir=" + p.Dir, "-cp", filepath.Join(libs, "*")}, jvm...)
		return process.Launch(process.Command{Path: "java", Args: append(args, class, "-c", conf), Log: log, CPUs: p.CPUs})
	}
	server, err := launch(rocketNameJVM, "org.apache.rocketmq.namesrv.NamesrvStartup", nameConf, p.Dir+".names.log")
	if err != nil {
		return nil, err
	}
	if err := Listens(ctx, server, names); err != nil {
		return nil, errors.Join(err, server.Kill())
	}
	broker, err := launch(rocketJVM, "org.apache.rocketmq.broker.BrokerStartup", brokerConf, p.Dir+".log")
	if err != nil {
		return nil, errors.Join(err, server.Kill())
	}
	both := load.RocketAddress(names, address)
	if err := awaitRocket(ctx, broker, both); err != nil {
		return nil, errors.Join(err, broker.Kill(), server.Kill())
	}
	return &Running{
		Address: both,
		PIDs:    func() []int { return append(broker.PIDs(), server.PIDs()...) },
		Stop:    func(ctx context.Context) error { return errors.Join(broker.Stop(ctx), server.Stop(ctx)) },
		Kill:    func() error { return errors.Join(broker.Kill(), server.Kill()) },
	}, nil
}

// awaitRocket waits until the broker has told the name server that it serves.
func awaitRocket(ctx context.Context, broker *process.Child, address string) error {
	d, err := load.OpenRocket(address)
	if err != nil {
		return err
	}
	err = await(ctx, broker, func(ctx context.Context) error { return d.Knows(ctx, rocketBroker) })
	return errors.Join(err, d.Close())
}

// rocketSettings is the broker's address and configuration. It listens on two ports more: two below its own, and one for replicas.
func rocketSettings(p Place, names, flush string) (address, text string, err error) {
	replicas, err := process.FreeAddress()
	if err != nil {
		return "", "", err
	}
	_, replicasPort, err := net.SplitHostPort(replicas)
	if err != nil {
		return "", "", err
	}
	port := 0
	for tries := 0; port == 0; tries++ {
		if address, err = process.FreeAddress(); err != nil {
			return "", "", err
		}
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			return "", "", err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", "", err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n-2))
		if err == nil {
			port, err = n, l.Close()
		}
		if err != nil && tries > 100 {
			return "", "", fmt.Errorf("two free ports: %w", err)
		}
	}
	settings := []string{
		"brokerClusterName=tierbroker-bench-cluster", "brokerName=" + rocketBroker, "brokerId=0", "brokerRole=ASYNC_MASTER", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1",
		"bindAddress=127.0.0.1", "listenPort=" + strconv.Itoa(port), "haListenPort=" + replicasPort, "namesrvAddr=" + names,
		"storePathRootDir=" + filepath.Join(p.Dir, "store"), "storePathCommitLog=" + filepath.Join(p.Dir, "store", "commitlog"),
		"flushDiskType=" + flush, "autoCreateTopicEnable=false", "autoCreateSubscriptionGroup=true", "diskMaxUsedSpaceRatio=95",
	}
	settings = append(settings, strings.Split(rocketPatience, ", ")...)
	return address, strings.Join(append(settings, p.Args...), "\n") + "\n", nil
}
