package config

import (
	"bytes"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTableIsComplete(t *testing.T) {
	require.LessOrEqual(t, len(Settings), 40, "a setting more is a decision less: see DESIGN")
	fields := make(map[any]string)
	names := make(map[string]bool)
	var c Config
	for i := range Settings {
		s := &Settings[i]
		require.False(t, names[s.Name], "%s twice", s.Name)
		names[s.Name] = true
		require.NotEmpty(t, s.Text, s.Name)
		require.NotEmpty(t, s.Reason, s.Name)
		require.NotEmpty(t, s.Group, s.Name)
		p := s.field(&c)
		require.Empty(t, fields[p], "%s and %s share a field", s.Name, fields[p])
		fields[p] = s.Name
		require.False(t, injected.MatchString("_"+strings.TrimPrefix(s.EnvName(), EnvPrefix)),
			"%s looks like a variable of a Kubernetes service", s.EnvName())
	}
}

func TestDefaults(t *testing.T) {
	c, err := Load(Input{})
	require.NoError(t, err)
	require.Equal(t, int32(1), c.BrokerID)
	require.Equal(t, Bytes(256<<20), c.SegmentFileBytes)
	require.Equal(t, 500*time.Millisecond, c.SyncInterval)
	require.True(t, c.HasRole(RoleBroker))
	require.True(t, c.HasRole(RoleController))
	require.Equal(t, "default", c.Source("data-dir"))
	for i := range Settings {
		s := &Settings[i]
		require.Equal(t, s.Default, s.get(c), "%s: write the default as it prints", s.Name)
	}
}

func TestPrecedence(t *testing.T) {
	path := writeFile(t, "cache-bytes: 1GiB\nlog-level: warn\nbroker-id: 3\nlog-format: json\n")
	c, err := Load(Input{
		File:  path,
		Env:   []string{"TIERBROKER_LOG_LEVEL=error", "TIERBROKER_BROKER_ID=4", "HOME=/x", "TIERBROKER_CONFIG=" + path},
		Flags: map[string]string{"broker-id": "5"},
	})
	require.NoError(t, err)
	require.Equal(t, Bytes(1<<30), c.CacheBytes)
	require.Equal(t, "error", c.LogLevel)
	require.Equal(t, int32(5), c.BrokerID)
	require.Equal(t, path+":1", c.Source("cache-bytes"))
	require.Equal(t, "$TIERBROKER_LOG_LEVEL", c.Source("log-level"))
	require.Equal(t, "--broker-id", c.Source("broker-id"))
}

func TestEveryFaultIsReportedAtOnce(t *testing.T) {
	path := writeFile(t, `# a comment
data_dir: /tmp/x
cache-bytes: 12 apples
log-level: inof

roles: [broker, brokr]
kafka-config:
  retention.ms: 5
  nonsense: 1
log-level: warn
bucket: s4://x
max-inflight-bytes: 1MiB
`)
	_, err := Load(Input{
		File:  path,
		Env:   []string{"TIERBROKER_COLD_WORKER=3", "TIERBROKER_PORT_9092_TCP=tcp://10.0.0.1:9092", "TIERBROKER_SERVICE_HOST=10.0.0.1", "TIERBROKER_ADMIN_PORT=tcp://1", "TIERBROKER_TEST_S3=minio"},
		Flags: map[string]string{"kafka-listen": "nine"},
		CheckKafka: func(key, _ string) error {
			if key == "nonsense" {
				return errors.New("unknown Kafka setting \"nonsense\"")
			}
			return nil
		},
		CheckBucket: func(url string) error { return errors.New("no bucket is " + url) },
	})
	var faults Faults
	require.ErrorAs(t, err, &faults)
	require.Equal(t, strings.ReplaceAll(`F:2: unknown setting "data_dir"; did you mean "data-dir"?
F:3: cache-bytes: "12 apples" is not a size such as 64MiB, 1GiB or 4096
F:4: log-level: "inof" is none of debug, info, warn, error; did you mean "info"?
F:6: roles: "brokr" is none of broker, controller; did you mean "broker"?
F:10: log-level: set a second time; first in line 4
$TIERBROKER_COLD_WORKER: unknown setting "cold-worker"; did you mean "cold-workers"?
--kafka-listen: kafka-listen: "nine" is not HOST:PORT
F:9: kafka-config: unknown Kafka setting "nonsense"
F:11: bucket: no bucket is s4://x
F:12: max-inflight-bytes: 1MiB is below max-request-bytes (100MiB): the largest request could never be read`, "F:", path+":"), faults.Error())
}

func TestBrokenFiles(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"not a mapping": {"- a\n- b\n", ":1: expected lines"},
		"syntax":        {"a: [1\nb: 2\n", "line 1"},
		"wrong shape":   {"data-dir:\n  x: 1\n", ":2: data-dir: expected a path"},
		"list in list":  {"roles: [[broker]]\n", ":1: roles: items must be plain words"},
		"map as text":   {"kafka-config: abc\n", ":1: kafka-config: expected a map"},
		"tab":           {"\tdata-dir: x\n", "found character that cannot start any token"},
		"large":         {strings.Repeat("#", maxFile+1), "larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Input{File: writeFile(t, tc.text)})
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := Load(Input{File: filepath.Join(t.TempDir(), "none.yaml")})
	require.ErrorContains(t, err, "no such file")
	_, err = Load(Input{File: writeFile(t, "")})
	require.NoError(t, err, "an empty file sets nothing")
}

func TestCrossChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		flags map[string]string
		env   []string
		want  string
	}{
		"wildcard":  {flags: map[string]string{"kafka-listen": "0.0.0.0:9092"}, want: "advertise: must be set"},
		"no etcd":   {flags: map[string]string{"roles": "broker"}, want: "etcd-endpoints: must be set"},
		"inflight":  {env: []string{"TIERBROKER_MAX_INFLIGHT_BYTES=2MiB"}, want: "below max-request-bytes"},
		"budget":    {env: []string{"TIERBROKER_DISK_BUDGET=512MiB"}, want: "below four times segment-file-bytes"},
		"file size": {env: []string{"TIERBROKER_SEGMENT_FILE_BYTES=64MiB"}, want: "a batch must fit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Input{Flags: tc.flags, Env: tc.env})
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestAdvertise(t *testing.T) {
	bound := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40123}
	for _, tc := range []struct {
		listen, advertise, host string
		port                    int32
	}{
		{"127.0.0.1:9092", "", "127.0.0.1", 9092},
		{"127.0.0.1:0", "", "127.0.0.1", 40123},
		{"0.0.0.0:9092", "Broker1.Example", "Broker1.Example", 9092},
		{"0.0.0.0:9092", "broker1:19092", "broker1", 19092},
		{"[::1]:9092", "", "::1", 9092},
		{"[::]:9092", "fe80::1", "fe80::1", 9092},
		{"[::]:9092", "[fe80::1]:7", "fe80::1", 7},
	} {
		flags := map[string]string{"kafka-listen": tc.listen}
		if tc.advertise != "" {
			flags["advertise"] = tc.advertise
		}
		c, err := Load(Input{Flags: flags})
		require.NoError(t, err)
		host, port, err := c.AdvertiseHostPort(bound)
		require.NoError(t, err)
		require.Equal(t, tc.host, host)
		require.Equal(t, tc.port, port)
	}
	for _, bad := range []string{":9092", "host:0", "host:port", "a:b:c"} {
		_, err := Load(Input{Flags: map[string]string{"advertise": bad}})
		require.Error(t, err, bad)
	}
}

func TestSizesAndDurations(t *testing.T) {
	for v, want := range map[string]Bytes{"0": 0, "4096": 4096, "64MiB": 64 << 20, "10MB": 10e6, "1.5GiB": 3 << 29, "7 KiB": 7 << 10, "12B": 12} {
		got, err := ParseBytes(v)
		require.NoError(t, err, v)
		require.Equal(t, want, got, v)
	}
	for _, v := range []string{"", "-1", "MiB", "1e3", "0x10", "1 M", "99999999PiB", "NaN", "InfB"} {
		_, err := ParseBytes(v)
		require.Error(t, err, v)
	}
	for v, want := range map[string]time.Duration{"0": 0, "500ms": 500 * ms, "7d": 7 * day, "1w": 7 * day, "1d12h": 36 * hour, "1h30m": 90 * minute} {
		got, err := ParseDuration(v)
		require.NoError(t, err, v)
		require.Equal(t, want, got, v)
	}
	for _, v := range []string{"", "5", "-5m", "d", "1.5d", "99999999w", "5m3"} {
		_, err := ParseDuration(v)
		require.Error(t, err, v)
	}
}

func TestWhatPrintsParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Min(0).Draw(t, "bytes"))
		got, err := ParseBytes(b.String())
		require.NoError(t, err)
		require.Equal(t, b, got)
		d := time.Duration(rapid.Int64Min(0).Draw(t, "duration"))
		back, err := ParseDuration(FormatDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, back)
	})
}

func TestDocumentIsInStep(t *testing.T) {
	var want bytes.Buffer
	require.NoError(t, WriteMarkdown(&want))
	path := filepath.Join("..", "docs", "configuration.md")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got), "run: make docs")
}

func TestRendering(t *testing.T) {
	c, err := Load(Input{Flags: map[string]string{"bucket": "s3://logs"}, Env: []string{"TIERBROKER_KAFKA_CONFIG=retention.ms=5; cleanup.policy=compact,delete"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"retention.ms": "5", "cleanup.policy": "compact,delete"}, c.KafkaConfig)
	var b bytes.Buffer
	require.NoError(t, c.WriteEffective(&b))
	require.Contains(t, b.String(), "--bucket")
	require.Contains(t, b.String(), "cleanup.policy=compact,delete;retention.ms=5")
	b.Reset()
	require.NoError(t, WriteHelp(&b))
	require.Contains(t, b.String(), "cache-bytes")
	require.Len(t, c.Values(), len(Settings))
}

func FuzzFile(f *testing.F) {
	f.Add("data-dir: x\nroles: [broker]\n")
	f.Add("kafka-config: {a: b}\n")
	f.Add("a: &x [*x]\n")
	f.Add("kafka-config: &m {<<: *m}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Load(Input{File: writeFile(t, text)})
		var faults Faults
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("error of type %T", err)
		}
	})
}
