package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// s3Env gives the process the credentials of a test server, and none from the
// machine the test runs on.
func s3Env(t *testing.T, s *s3test.Server) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	for _, kv := range s.Environ() {
		name, v, _ := strings.Cut(kv, "=")
		t.Setenv(name, v)
	}
	t.Setenv("AWS_REGION", "")
}

func TestS3MistakesAreToldInOneSentence(t *testing.T) {
	server := s3test.Start(t)
	s3Env(t, server)
	good := server.URL("p")
	missing := good
	missing.Bucket = "no-such-bucket"
	region := good
	region.Region = "eu-north-9"
	for name, tc := range map[string]struct {
		url, secret, want string
	}{
		"missing bucket":  {url: missing.String(), want: "no-such-bucket"},
		"wrong region":    {url: region.String(), want: "region"},
		"wrong secret":    {url: good.String(), secret: "wrong", want: "secret"},
		"bad bucket name": {url: "s3://NO_GOOD", want: "bucket name"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.secret != "" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", tc.secret)
			}
			err := failing(t, "TIERBROKER_DATA_DIR="+t.TempDir(), "TIERBROKER_BUCKET="+tc.url)
			require.Contains(t, strings.ToLower(err.Error()), tc.want)
			require.NotContains(t, err.Error(), "\n", "one sentence")
		})
	}
}

func (r *running) act(t *testing.T, what string) {
	t.Helper()
	resp, err := http.Post(r.admin+"/api/v1/topics/t/"+what, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestArchiveInS3(t *testing.T) {
	server := s3test.Start(t)
	s3Env(t, server)
	dir := t.TempDir()
	env := "TIERBROKER_BUCKET=" + server.URL("p").String()
	r := start(t, dir, env)
	r.produce(t, "a", "b")
	r.act(t, "roll")
	r.act(t, "evict")
	require.Equal(t, []string{"a", "b"}, r.consume(t, 2))
	r.end(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "index")))

	// A broker that knows its bucket starts without it, serves what is local, and
	// the archive when it is back.
	server.Stop()
	r = start(t, dir, env)
	require.Equal(t, 1, r.logs.FilterMessage("the bucket does not answer; starting without it").Len())
	require.NoError(t, server.Restart())
	require.Equal(t, []string{"a", "b"}, r.consume(t, 2))
	r.produce(t, "c")
	require.Equal(t, []string{"a", "b", "c"}, r.consume(t, 3))
	require.Eventually(t, func() bool { return r.logs.FilterMessage("the bucket answers again").Len() > 0 }, 30*time.Second, 50*time.Millisecond)
	r.end(t)
}
