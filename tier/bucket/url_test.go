package bucket_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestParseURL(t *testing.T) {
	for s, want := range map[string]bucket.URL{
		"file:///var/lib/x":          {Scheme: "file", Path: "/var/lib/x"},
		"file://localhost/var/lib/x": {Scheme: "file", Path: "/var/lib/x"},
		"file:///a%20b":              {Scheme: "file", Path: "/a b"},
		"mem://":                     {Scheme: "mem"},
		"s3://logs":                  {Scheme: "s3", Bucket: "logs"},
		"s3://logs/":                 {Scheme: "s3", Bucket: "logs"},
		"s3://my.logs-1/a/b/":        {Scheme: "s3", Bucket: "my.logs-1", Prefix: "a/b"},
		"s3://logs/x?endpoint=http://127.0.0.1:9000&region=eu-west-1&path-style=true": {Scheme: "s3", Bucket: "logs", Prefix: "x",
			Endpoint: "127.0.0.1:9000", Plain: true, Region: "eu-west-1", PathStyle: true},
		"s3://logs?endpoint=https://minio.example.com/": {Scheme: "s3", Bucket: "logs", Endpoint: "minio.example.com"},
		"s3://logs?endpoint=http://[::1]:9000":          {Scheme: "s3", Bucket: "logs", Endpoint: "[::1]:9000", Plain: true},
		"s3://logs?path-style=false":                    {Scheme: "s3", Bucket: "logs"},
	} {
		got, err := bucket.ParseURL(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
}

// TestParseURLFaults: each fault of a URL is named.
func TestParseURLFaults(t *testing.T) {
	for s, faults := range map[string][]string{
		"":                           {"scheme is missing"},
		"/var/lib/x":                 {"scheme is missing"},
		"gs://x":                     {`"gs" is unknown`},
		"%zz":                        {"invalid URL escape"},
		"file://var/lib/x":           {"three slashes"},
		"file:var/lib/x":             {"three slashes"},
		"file://":                    {"path is missing"},
		"file:///":                   {"path is missing"},
		"file:///x?region=y#z":       {`"region" is unknown`, "#z"},
		"mem://x":                    {"nothing may follow"},
		"s3:///x":                    {"name is missing"},
		"s3://AB/../x?what=1&zone=2": {"3 to 63", "lower-case", "prefix", `"what"`, `"zone"`},
		"s3://1.2.3.4":               {"IP address"},
		"s3://a..b":                  {"begin and end"},
		"s3://key:secret@logs":       {"credentials"},
		"s3://logs?endpoint=127.0.0.1:9000&region=&path-style=maybe":        {"http://HOST:PORT", `region ""`, `"maybe"`},
		"s3://logs?endpoint=http://h:99999/x%3Fy&region=a&region=b":         {"99999", "more than scheme", "2 times"},
		"s3://logs?endpoint=http://h:":                                      {"port is missing"},
		"s3://logs/" + strings.Repeat("x", 200):                             {"200 bytes"},
		"s3://logs?region=" + strings.Repeat("x", 100) + "&endpoint=ftp://": {"invalid", "http://HOST:PORT"},
		"s3://logs?a=%zz": {"malformed"},
	} {
		_, err := bucket.ParseURL(s)
		require.ErrorIs(t, err, bucket.ErrConfig, s)
		for _, f := range faults {
			require.ErrorContains(t, err, f, s)
		}
		require.NotContains(t, err.Error(), "\n")
	}
}

// FuzzParseURL: nothing panics, and what parses prints as a URL that parses to the same.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"file:///x/y", "mem://", "s3://logs/x?endpoint=http://127.0.0.1:9000&region=r&path-style=1", "s3://a:b@c", "%zz", "file:///%2e%2e/x",
		"s3://logs?endpoint=https://[::1]", "file://localhost/%00", "s3://logs/a%2Fb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := bucket.ParseURL(s)
		if err != nil {
			require.ErrorIs(t, err, bucket.ErrConfig)
			return
		}
		again, err := bucket.ParseURL(u.String())
		require.NoError(t, err, "%q prints as %q", s, u.String())
		require.Equal(t, u, again)
	})
}
