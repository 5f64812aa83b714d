package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Roles a process can have.
const (
	RoleBroker     = "broker"
	RoleController = "controller"
)

// Bytes is a size in bytes; it prints with the largest unit that divides it.
type Bytes int64

// Config holds the value of every setting. The table in settings.go documents
// each field's unit, default and reason.
type Config struct {
	DataDir     string
	KafkaListen string
	AdminListen string
	Advertise   string
	Bucket      string
	BrokerID    int32
	Roles       []string
	Rack        string
	Labels      []string
	LogLevel    string
	LogFormat   string
	Pprof       bool

	EtcdEndpoints   []string
	EtcdListen      string
	Controllers     []string
	EtcdPrefix      string
	LeaseTTL        time.Duration
	ClusterSecurity map[string]string
	PeerListen      string
	ShutdownDrain   time.Duration

	SegmentFileBytes Bytes
	SyncInterval     time.Duration
	UploadInterval   time.Duration
	DiskBudget       Bytes
	DiskMinFree      Bytes

	CacheBytes  Bytes
	ColdWorkers int
	RollWorkers int
	SweepDelay  time.Duration

	MaxConnections   int
	MaxRequestBytes  Bytes
	MaxInflightBytes Bytes
	IdleTimeout      time.Duration
	FetchMaxBytes    Bytes
	FetchSessions    int

	AutoCreateTopics bool
	NumPartitions    int32
	ProducerExpiry   time.Duration
	KafkaConfig      map[string]string

	sources map[string]string
}

// Source returns where a setting's value came from: "default", "FILE:LINE",
// the name of a variable, or a flag.
func (c *Config) Source(name string) string {
	if s, ok := c.sources[name]; ok {
		return s
	}
	return "default"
}

// HasRole tells whether the process has the given role.
func (c *Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// AdvertiseHostPort returns the host and port that clients are told. bound is
// the address the Kafka listener really has, which gives the port when neither
// advertise nor kafka-listen names one (port 0).
func (c *Config) AdvertiseHostPort(bound net.Addr) (string, int32, error) {
	host, port, err := splitHostPort(c.KafkaListen)
	if err != nil {
		return "", 0, err
	}
	if c.Advertise != "" {
		ahost, aport, err := splitAdvertise(c.Advertise)
		if err != nil {
			return "", 0, err
		}
		host = ahost
		if aport != 0 {
			return host, aport, nil
		}
	}
	if tcp, ok := bound.(*net.TCPAddr); ok && port == 0 {
		port = int32(tcp.Port)
	}
	return host, port, nil
}

// AdminURL returns the base URL of the admin API as other nodes reach it.
func (c *Config) AdminURL(bound net.Addr) string {
	at := c.ReachedAt(c.AdminListen, bound)
	if at == "" {
		return ""
	}
	u := url.URL{Scheme: "http", Host: at}
	return u.String()
}

// crossCheck holds the rules that join several settings. Each fault names the
// setting that the operator most likely wants to change.
func (c *Config) crossCheck() []Fault {
	var faults []Fault
	add := func(name, format string, args ...any) {
		faults = append(faults, Fault{Where: c.Source(name), Name: name, Message: fmt.Sprintf(format, args...)})
	}
	if host, _, err := splitHostPort(c.KafkaListen); err == nil && isWildcard(host) && c.Advertise == "" {
		add("advertise", "must be set when kafka-listen is %s: clients can't connect to a wildcard address", c.KafkaListen)
	}
	c.checkCluster(add)
	if c.MaxInflightBytes < c.MaxRequestBytes {
		add("max-inflight-bytes", "%s is below max-request-bytes (%s): the largest request could never be read",
			c.MaxInflightBytes, c.MaxRequestBytes)
	}
	if c.DiskBudget != 0 && c.DiskBudget < 4*c.SegmentFileBytes {
		add("disk-budget", "%s is below four times segment-file-bytes (%s): the commit log needs room for the file in use, the next one and those being rolled",
			c.DiskBudget, c.SegmentFileBytes)
	}
	if c.MaxRequestBytes > c.SegmentFileBytes {
		add("segment-file-bytes", "%s is below max-request-bytes (%s): a batch must fit into one file",
			c.SegmentFileBytes, c.MaxRequestBytes)
	}
	return faults
}

func isWildcard(host string) bool {
	return host == "" || host == "0.0.0.0" || host == "::"
}

func splitHostPort(s string) (string, int32, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return host, int32(n), nil
}

// splitAdvertise takes HOST or HOST:PORT; port 0 means "the listener's".
func splitAdvertise(s string) (string, int32, error) {
	if s == "" {
		return "", 0, nil
	}
	if !strings.Contains(s, ":") || net.ParseIP(s) != nil {
		return s, 0, nil
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	if host == "" {
		return "", 0, fmt.Errorf("%q names no host", s)
	}
	if port == 0 {
		return "", 0, fmt.Errorf("%q: port 0 can't be advertised", s)
	}
	return host, port, nil
}
