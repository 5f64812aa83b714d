package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of broker settings that code refers to.
const (
	AutoCreateTopics  = "auto.create.topics.enable"
	NumPartitions     = "num.partitions"
	DefaultReplicas   = "default.replication.factor"
	DeleteTopicEnable = "delete.topic.enable"
)

// BrokerConfigDefs lists the broker settings that clients and tools look for.
// Those that stand behind a topic setting share its rules.
var BrokerConfigDefs = brokerConfigDefs()

var brokerDefs = defsByName(BrokerConfigDefs)

// BrokerConfigDef returns the definition of a broker setting, nil when there is none.
func BrokerConfigDef(name string) *ConfigDef { return brokerDefs[name] }

func brokerConfigDefs() []ConfigDef {
	defs := []ConfigDef{
		{Name: "advertised.listeners", Type: TypeString, ReadOnly: true, Doc: "Addresses that clients are told to use."},
		{Name: AutoCreateTopics, Type: TypeBoolean, Default: "true", ReadOnly: true, Doc: "Whether an unknown topic that a client asks for is created."},
		{Name: "auto.leader.rebalance.enable", Type: TypeBoolean, Default: "true", ReadOnly: true, Doc: "Accepted for compatibility."},
		{Name: "broker.id", Type: TypeInt, Default: "1", ReadOnly: true, Doc: "Number of this broker, unique in the cluster."},
		{Name: "broker.rack", Type: TypeString, ReadOnly: true, Doc: "Rack of this broker."},
		{Name: "connections.max.idle.ms", Type: TypeLong, Default: "600000", ReadOnly: true, check: atLeast(-1), Doc: "Milliseconds after which an idle connection is closed."},
		{Name: "controlled.shutdown.enable", Type: TypeBoolean, Default: "true", ReadOnly: true, Doc: "Whether partitions are handed over before the broker stops."},
		{Name: DefaultReplicas, Type: TypeInt, Default: "1", ReadOnly: true, check: atLeast(1), Doc: "Replication factor reported for topics that name none. Each partition has one owner; the bucket holds the copies."},
		{Name: DeleteTopicEnable, Type: TypeBoolean, Default: "true", ReadOnly: true, Doc: "Whether topics can be deleted."},
		{Name: "fetch.max.bytes", Type: TypeInt, Default: "57671680", ReadOnly: true, check: atLeast(1024), Doc: "Most bytes of one fetch response."},
		{Name: "follower.replication.throttled.rate", Type: TypeLong, Default: longMax, check: atLeast(0), Doc: "Accepted for compatibility: moves copy nothing that could be throttled."},
		{Name: "inter.broker.protocol.version", Type: TypeString, Default: "4.1", ReadOnly: true, Doc: "Accepted for compatibility."},
		{Name: "leader.replication.throttled.rate", Type: TypeLong, Default: longMax, check: atLeast(0), Doc: "Accepted for compatibility: moves copy nothing that could be throttled."},
		{Name: "listeners", Type: TypeString, ReadOnly: true, Doc: "Addresses the broker listens on."},
		{Name: "log.dir", Type: TypeString, ReadOnly: true, Doc: "Data directory."},
		{Name: "log.dirs", Type: TypeString, ReadOnly: true, Doc: "Data directory."},
		{Name: "log.message.format.version", Type: TypeString, Default: "3.0-IV1", ReadOnly: true, Doc: "Accepted for compatibility: message format 2 only."},
		{Name: "log.retention.check.interval.ms", Type: TypeLong, Default: "300000", ReadOnly: true, check: atLeast(1), Doc: "Accepted for compatibility."},
		{Name: "max.connections", Type: TypeInt, Default: "2147483647", ReadOnly: true, check: atLeast(0), Doc: "Most connections of the broker."},
		{Name: "max.connections.per.ip", Type: TypeInt, Default: "2147483647", ReadOnly: true, check: atLeast(0), Doc: "Accepted for compatibility."},
		{Name: "node.id", Type: TypeInt, Default: "1", ReadOnly: true, Doc: "Number of this broker, unique in the cluster."},
		{Name: "num.io.threads", Type: TypeInt, Default: "8", ReadOnly: true, check: atLeast(1), Doc: "Accepted for compatibility."},
		{Name: "num.network.threads", Type: TypeInt, Default: "3", ReadOnly: true, check: atLeast(1), Doc: "Accepted for compatibility."},
		{Name: NumPartitions, Type: TypeInt, Default: "1", ReadOnly: true, check: atLeast(1), Doc: "Partitions of topics that name no number, as in auto-creation."},
		{Name: "offsets.topic.num.partitions", Type: TypeInt, Default: "50", ReadOnly: true, check: atLeast(1), Doc: "Partitions of the topic of committed offsets."},
		{Name: "offsets.topic.replication.factor", Type: TypeShort, Default: "1", ReadOnly: true, check: atLeast(1), Doc: "Accepted for compatibility."},
		{Name: "process.roles", Type: TypeList, Default: "broker,controller", ReadOnly: true, Doc: "Roles of this process."},
		{Name: "producer.id.expiration.ms", Type: TypeInt, Default: "86400000", check: atLeast(1), Doc: "Milliseconds after which the state of an idle idempotent producer is dropped."},
		{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: TypeLong, Default: longMax, check: atLeast(0), Doc: "Accepted for compatibility: a broker has one directory."},
		{Name: "replica.fetch.max.bytes", Type: TypeInt, Default: "1048576", ReadOnly: true, check: atLeast(0), Doc: "Accepted for compatibility."},
		{Name: "replica.lag.time.max.ms", Type: TypeLong, Default: "30000", ReadOnly: true, Doc: "Accepted for compatibility."},
		{Name: "sasl.kerberos.min.time.before.relogin", Type: TypeLong, Default: "60000", Doc: "Accepted for compatibility: there is no Kerberos."},
		{Name: "socket.request.max.bytes", Type: TypeInt, Default: "104857600", ReadOnly: true, check: atLeast(1), Doc: "Largest request in bytes."},
		{Name: "transaction.max.timeout.ms", Type: TypeInt, Default: "900000", ReadOnly: true, check: atLeast(1), Doc: "Longest transaction timeout a producer may ask for, in milliseconds."},
		{Name: "transaction.state.log.num.partitions", Type: TypeInt, Default: "50", ReadOnly: true, check: atLeast(1), Doc: "Partitions of the topic of transactions."},
		{Name: "transaction.state.log.replication.factor", Type: TypeShort, Default: "1", ReadOnly: true, check: atLeast(1), Doc: "Accepted for compatibility."},
		{Name: "transactional.id.expiration.ms", Type: TypeInt, Default: "604800000", ReadOnly: true, check: atLeast(1), Doc: "Milliseconds after which an unused transactional id is dropped."},
	}
	return slices.Concat(defs, GroupConfigDefs, MovesConfigDefs, derivedBrokerDefs())
}

// derivedBrokerDefs are the broker settings behind topic settings; they are
// dynamic, as in Kafka.
func derivedBrokerDefs() []ConfigDef {
	var defs []ConfigDef
	for i := range TopicConfigDefs {
		t := &TopicConfigDefs[i]
		for j, s := range t.Synonyms {
			d := ConfigDef{Name: s.Name, Type: t.Type, Default: t.Default, check: t.check,
				Doc: "Default of topics for " + t.Name + ". " + t.Doc}
			if len(t.Synonyms) > 1 {
				scaledDef(&d, t, j)
			}
			defs = append(defs, d)
		}
	}
	return defs
}

// scaledDef gives one of several units of a setting its type and default: the
// coarsest unit has the default, the others are empty, as in Kafka.
func scaledDef(d *ConfigDef, t *ConfigDef, j int) {
	s := t.Synonyms[j]
	d.check = orEmpty(d.check)
	d.Default = ""
	if s.Scale > 1 {
		d.Type = TypeInt
		d.Doc = strings.Replace(d.Doc, "Milliseconds", "Time in the unit of its name", 1)
	}
	if j == 0 {
		// Our defaults need not be whole hours, so the finest unit carries them.
		d.Default = t.Default
	}
}

func orEmpty(check func(string) string) func(string) string {
	return func(v string) string {
		if v == "" || check == nil {
			return ""
		}
		return check(v)
	}
}

// BrokerSettings are broker settings with a type, for code.
type BrokerSettings struct {
	AutoCreateTopics     bool
	NumPartitions        int32
	ReplicationFactor    int16
	DeleteTopics         bool
	MessageMaxBytes      int32
	ProducerExpirationMs int64
}

// ParseBrokerSettings reads merged broker settings (ConfigLayers.Merged). Values
// that do not parse count as not set.
func ParseBrokerSettings(m map[string]string) BrokerSettings {
	get := func(name string) string {
		d := brokerDefs[name]
		if v, ok := m[name]; ok && d.Validate(v) == nil {
			return strings.TrimSpace(v)
		}
		return d.Default
	}
	num := func(name string) int64 {
		n, err := strconv.ParseInt(get(name), 10, 64)
		if err != nil {
			return 0 // unreachable: validated or a default
		}
		return n
	}
	return BrokerSettings{
		AutoCreateTopics:     strings.EqualFold(get(AutoCreateTopics), "true"),
		NumPartitions:        int32(num(NumPartitions)),
		ReplicationFactor:    int16(min(num(DefaultReplicas), 1<<15-1)),
		DeleteTopics:         strings.EqualFold(get(DeleteTopicEnable), "true"),
		MessageMaxBytes:      int32(num("message.max.bytes")),
		ProducerExpirationMs: num("producer.id.expiration.ms"),
	}
}

// CheckBrokerConfig checks static broker settings by the rules of dynamic ones.
// Unknown names are fine: the process has settings of its own. The error is a
// *ConfigError.
func CheckBrokerConfig(m map[string]string) error {
	known := maps.Clone(m)
	maps.DeleteFunc(known, func(k, _ string) bool { return brokerDefs[k] == nil })
	return checkValues(brokerDefs, "broker", known)
}
