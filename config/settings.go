package config

// Kind is the way a value is written.
type Kind string

// The kinds of values.
const (
	KindText     Kind = "text"
	KindPath     Kind = "path"
	KindAddress  Kind = "host:port"
	KindURL      Kind = "URL"
	KindChoice   Kind = "choice"
	KindBool     Kind = "true or false"
	KindNumber   Kind = "number"
	KindSize     Kind = "size"
	KindDuration Kind = "duration"
	KindList     Kind = "list"
	KindMap      Kind = "map"
)

// Setting is one row of the table.
type Setting struct {
	Name    string   // key in the file, flag, and (upper case) variable
	Group   string   // heading in the documentation
	Kind    Kind     // how a value is written
	Unit    string   // what a number counts; "" when the kind says it
	Default string   // as one would write it; "" is empty
	Min     int64    // smallest number, size in bytes, or duration in ns
	Max     int64    // likewise the largest; 0 = no bound
	Zero    string   // what 0 means, when 0 is allowed although below Min
	Choices []string // for KindChoice, and for the items of a KindList when set
	Flag    bool     // has a command-line flag
	Text    string   // what it does, one sentence
	Reason  string   // why the default is what it is

	field func(*Config) any    // pointer to the field
	check func(v string) error // further check of the text
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	ms     = 1_000_000
	second = 1000 * ms
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// Settings is the table of all settings, in the order they are documented.
var Settings = []Setting{
	{Name: "data-dir", Group: "Process", Kind: KindPath, Default: "./data", Flag: true,
		field:  func(c *Config) any { return &c.DataDir },
		Text:   "Directory for the commit log, the index, the embedded etcd and the identity of this broker; one process at a time.",
		Reason: "A first run needs no rights outside the working directory."},
	{Name: "broker-id", Group: "Process", Kind: KindNumber, Default: "1", Min: 1, Max: 1<<31 - 1, Flag: true,
		field:  func(c *Config) any { return &c.BrokerID },
		Text:   "Number of this broker in the cluster; never change it for a data directory in use.",
		Reason: "Some clients treat node 0 as unset, so numbering starts at 1."},
	{Name: "roles", Group: "Process", Kind: KindList, Default: "broker,controller", Choices: []string{RoleBroker, RoleController}, Flag: true,
		field:  func(c *Config) any { return &c.Roles },
		Text:   "What this process does: owns partitions (broker), decides who owns them (controller), or both.",
		Reason: "One process is a complete cluster."},
	{Name: "rack", Group: "Process", Kind: KindText,
		field:  func(c *Config) any { return &c.Rack },
		Text:   "Failure domain of this broker, shown to clients and used for placement.",
		Reason: "Empty means unknown; Kafka clients then see null."},
	{Name: "labels", Group: "Process", Kind: KindList,
		field:  func(c *Config) any { return &c.Labels },
		Text:   "Words for placement; the label coordinator reserves this broker for internal topics.",
		Reason: "A single broker serves everything."},
	{Name: "log-level", Group: "Process", Kind: KindChoice, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Flag: true,
		field:  func(c *Config) any { return &c.LogLevel },
		Text:   "Least severe message that is logged.",
		Reason: "At info an idle broker writes nothing after its start-up line."},
	{Name: "log-format", Group: "Process", Kind: KindChoice, Default: "console", Choices: []string{"console", "json"}, Flag: true,
		field:  func(c *Config) any { return &c.LogFormat },
		Text:   "Form of log lines on standard error.",
		Reason: "People read the first run; log collectors want json."},
	{Name: "pprof", Group: "Process", Kind: KindBool, Default: "false",
		field:  func(c *Config) any { return &c.Pprof },
		Text:   "Serves Go's profiles under /debug/pprof/ of the admin address.",
		Reason: "Profiles cost time and show memory contents to whoever may connect."},

	{Name: "kafka-listen", Group: "Network", Kind: KindAddress, Default: "127.0.0.1:9092", Flag: true, check: checkAddress,
		field:  func(c *Config) any { return &c.KafkaListen },
		Text:   "Address for Kafka clients.",
		Reason: "Kafka's port; loopback only, because there is no authentication yet."},
	{Name: "advertise", Group: "Network", Kind: KindAddress, Flag: true, check: checkAdvertise,
		field:  func(c *Config) any { return &c.Advertise },
		Text:   "HOST or HOST:PORT that clients are told to connect to, handed out exactly as written; needed when kafka-listen is a wildcard address.",
		Reason: "Empty means the same as kafka-listen."},
	{Name: "admin-listen", Group: "Network", Kind: KindAddress, Default: "127.0.0.1:9644", Flag: true, check: checkAddress,
		field:  func(c *Config) any { return &c.AdminListen },
		Text:   "Address of the HTTP API: metrics, health, administration, console.",
		Reason: "Loopback only: whoever reaches it may roll and evict topics."},
	{Name: "max-connections", Group: "Network", Kind: KindNumber, Unit: "connections", Default: "10000", Min: 1, Max: 1_000_000,
		field:  func(c *Config) any { return &c.MaxConnections },
		Text:   "Kafka connections open at one time; further ones are closed at once.",
		Reason: "About 20 KiB each when idle; stays within a usual limit of 65,536 open files."},
	{Name: "max-request-bytes", Group: "Network", Kind: KindSize, Default: "100MiB", Min: 64 * kib, Max: 120 * mib,
		field:  func(c *Config) any { return &c.MaxRequestBytes },
		Text:   "Largest Kafka request; a larger one closes its connection.",
		Reason: "Kafka's socket.request.max.bytes."},
	{Name: "max-inflight-bytes", Group: "Network", Kind: KindSize, Default: "256MiB", Min: mib, Max: tib,
		field:  func(c *Config) any { return &c.MaxInflightBytes },
		Text:   "Request bytes in memory over all connections; reading pauses above it.",
		Reason: "Room for two of the largest requests and many usual ones."},
	{Name: "idle-timeout", Group: "Network", Kind: KindDuration, Default: "10m", Min: second, Max: 7 * day,
		field:  func(c *Config) any { return &c.IdleTimeout },
		Text:   "A Kafka connection without a request for this long is closed.",
		Reason: "Kafka's connections.max.idle.ms; clients reconnect by themselves."},
	{Name: "fetch-max-bytes", Group: "Network", Kind: KindSize, Default: "55MiB", Min: kib, Max: gib,
		field:  func(c *Config) any { return &c.FetchMaxBytes },
		Text:   "Most bytes in one fetch response, whatever the client asks for (a first batch may pass it).",
		Reason: "Kafka's fetch.max.bytes of a broker."},
	{Name: "fetch-sessions", Group: "Network", Kind: KindNumber, Unit: "sessions", Default: "1000", Min: 0, Max: 1_000_000,
		field:  func(c *Config) any { return &c.FetchSessions },
		Text:   "Incremental fetch sessions kept; further clients fetch without one.",
		Reason: "Kafka's max.incremental.fetch.session.cache.slots."},

	{Name: "segment-file-bytes", Group: "Commit log", Kind: KindSize, Default: "256MiB", Min: 4 * mib, Max: 4 * gib,
		field:  func(c *Config) any { return &c.SegmentFileBytes },
		Text:   "Size of one file of the commit log, allocated in full beforehand.",
		Reason: "Few files and mappings, yet local space is given back in small steps."},
	{Name: "sync-interval", Group: "Commit log", Kind: KindDuration, Default: "500ms", Min: ms, Max: minute,
		field:  func(c *Config) any { return &c.SyncInterval },
		Text:   "Longest time until data of async topics is synced to disk.",
		Reason: "What a power loss may take from async topics, against one fdatasync per interval."},
	{Name: "upload-interval", Group: "Commit log", Kind: KindDuration, Default: "100ms", Min: ms, Max: minute,
		field:  func(c *Config) any { return &c.UploadInterval },
		Text:   "Longest time that a batch of an object topic waits for others before it is uploaded; 4 MiB go at once.",
		Reason: "Latency of acks=all on object topics against requests to the bucket: at most one upload per interval and broker."},
	{Name: "disk-budget", Group: "Commit log", Kind: KindSize, Default: "20GiB", Zero: "all but disk-min-free", Min: 16 * mib, Max: 1024 * tib,
		field:  func(c *Config) any { return &c.DiskBudget },
		Text:   "Bytes that the commit log may use; files that the bucket covers go early when it is reached, then producers are slowed down, then refused.",
		Reason: "Local copies serve recent reads faster and cheaper; they are never the only copy for long. Raise it where the disk is the broker's own."},
	{Name: "disk-min-free", Group: "Commit log", Kind: KindSize, Default: "1GiB", Min: 1 * mib, Max: tib, Zero: "use the disk to its end",
		field:  func(c *Config) any { return &c.DiskMinFree },
		Text:   "Free space to leave on the file system of the data directory; the same steps as for disk-budget are taken below it.",
		Reason: "Room for the index, etcd and the next commit-log file."},

	{Name: "bucket", Group: "Archive", Kind: KindURL, Flag: true,
		field:  func(c *Config) any { return &c.Bucket },
		Text:   "Where the archive lives: file:///PATH or s3://NAME/PREFIX?endpoint=http://HOST:PORT&region=REGION (credentials from the AWS environment, files or web identity).",
		Reason: "Empty means file://<data-dir>/bucket, so that one command runs everything."},
	{Name: "cache-bytes", Group: "Archive", Kind: KindSize, Default: "256MiB", Min: 16 * mib, Max: 64 * tib,
		field:  func(c *Config) any { return &c.CacheBytes },
		Text:   "Memory for chunks of archive objects, outside Go's heap, taken only when archive data is read.",
		Reason: "Sixteen sequential readers with read-ahead."},
	{Name: "cold-workers", Group: "Archive", Kind: KindNumber, Unit: "requests", Default: "16", Min: 1, Max: 4096,
		field:  func(c *Config) any { return &c.ColdWorkers },
		Text:   "Bucket reads in flight for consumers.",
		Reason: "Fills a 10 Gbit/s link with 4 MiB ranges at usual S3 latency without crowding out producers."},
	{Name: "roll-workers", Group: "Archive", Kind: KindNumber, Unit: "uploads", Default: "4", Min: 1, Max: 1024,
		field:  func(c *Config) any { return &c.RollWorkers },
		Text:   "Partitions that are rolled into the bucket at the same time.",
		Reason: "Keeps up with a fast disk on usual S3 while reads keep their share."},
	{Name: "sweep-delay", Group: "Archive", Kind: KindDuration, Default: "1h", Min: second, Max: 365 * day,
		field:  func(c *Config) any { return &c.SweepDelay },
		Text:   "How long an object stays in the bucket after nothing refers to it.",
		Reason: "Longer than the longest read of one object and than any clock difference that matters."},

	{Name: "auto-create-topics", Group: "Topics", Kind: KindBool, Default: "true",
		field:  func(c *Config) any { return &c.AutoCreateTopics },
		Text:   "Creates a topic when a client that allows it first asks for it.",
		Reason: "Kafka's auto.create.topics.enable."},
	{Name: "num-partitions", Group: "Topics", Kind: KindNumber, Unit: "partitions", Default: "1", Min: 1, Max: 10_000,
		field:  func(c *Config) any { return &c.NumPartitions },
		Text:   "Partitions of a topic that is created without a number.",
		Reason: "Kafka's num.partitions; order over the whole topic is kept."},
	{Name: "producer-expiry", Group: "Topics", Kind: KindDuration, Default: "24h", Min: second, Max: 365 * day,
		field:  func(c *Config) any { return &c.ProducerExpiry },
		Text:   "State of an idempotent producer is forgotten after this time without a write.",
		Reason: "Kafka's producer.id.expiration.ms."},
	{Name: "kafka-config", Group: "Topics", Kind: KindMap,
		field:  func(c *Config) any { return &c.KafkaConfig },
		Text:   "Defaults of topic settings (retention.ms, tierbroker.durability, …) and further broker settings (group.min.session.timeout.ms, …) under Kafka's names.",
		Reason: "Empty means the defaults that docs/kafka.md lists."},

	{Name: "etcd-endpoints", Group: "Cluster", Kind: KindList, Flag: true,
		field:  func(c *Config) any { return &c.EtcdEndpoints },
		Text:   "URLs of the etcd that holds the cluster state: an existing etcd cluster, or etcd-listen of every controller.",
		Reason: "Empty means an etcd inside this process, in <data-dir>/etcd."},
	{Name: "etcd-listen", Group: "Cluster", Kind: KindAddress, Flag: true, check: checkOptionalAddress,
		field:  func(c *Config) any { return &c.EtcdListen },
		Text:   "Address at which the etcd inside a controller serves other nodes; whoever reaches it may change the cluster unless cluster-security demands certificates.",
		Reason: "Empty means no port: a single broker needs none."},
	{Name: "controllers", Group: "Cluster", Kind: KindList, Flag: true, check: checkControllers,
		field:  func(c *Config) any { return &c.Controllers },
		Text:   "All controllers whose etcds form one quorum, as ID@HOST:PORT (ID: its broker-id; PORT: for its etcd's peers, on the host of etcd-listen); the same list everywhere, three or five of them.",
		Reason: "Empty means that the etcd of one controller stands alone."},
	{Name: "etcd-prefix", Group: "Cluster", Kind: KindText, Default: "/tierbroker/", check: checkPrefix,
		field:  func(c *Config) any { return &c.EtcdPrefix },
		Text:   "Prefix of all keys in etcd.",
		Reason: "Lets clusters share an etcd by giving each its own."},
	{Name: "lease-ttl", Group: "Cluster", Kind: KindDuration, Default: "10s", Min: 2 * second, Max: 5 * minute,
		field:  func(c *Config) any { return &c.LeaseTTL },
		Text:   "A broker that etcd hasn't heard from for this long is taken for dead.",
		Reason: "Survives pauses of a busy machine; failover waits for it."},
	{Name: "cluster-security", Group: "Cluster", Kind: KindMap,
		field:  func(c *Config) any { return &c.ClusterSecurity },
		Text:   "Files and names for traffic between nodes: etcd-ca, etcd-cert, etcd-key (TLS with etcd; an etcd inside serves with them and demands certificates of that CA), etcd-user, etcd-password-file, peer-ca, peer-cert, peer-key (the same for peer-listen), peer-secret-file.",
		Reason: "Empty means plain connections for a network that only the cluster's nodes can reach."},
	{Name: "peer-listen", Group: "Cluster", Kind: KindAddress, Flag: true, check: checkOptionalAddress,
		field:  func(c *Config) any { return &c.PeerListen },
		Text:   "Address for calls from other nodes: load reports to the controller, and what one node asks another.",
		Reason: "Empty means no port: partitions are then placed by their number, not by their load."},
	{Name: "shutdown-drain", Group: "Cluster", Kind: KindDuration, Default: "30s", Min: second, Max: hour, Zero: "partitions are not moved away", Flag: true,
		field:  func(c *Config) any { return &c.ShutdownDrain },
		Text:   "Longest time in which a broker that is told to stop hands its partitions to other brokers first.",
		Reason: "Moves copy nothing; orchestrators kill after 30 s or later."},
}

// Lookup returns the setting with the given name.
func Lookup(name string) (*Setting, bool) {
	for i := range Settings {
		if Settings[i].Name == name {
			return &Settings[i], true
		}
	}
	return nil, false
}
