package s3_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// noEnvironment hides the credentials of the machine that runs the test.
func noEnvironment(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
}

func writeProfile(t *testing.T, profile, access, secret, token string) {
	text := fmt.Sprintf("[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", profile, access, secret)
	if token != "" {
		text += "aws_session_token = " + token + "\n"
	}
	require.NoError(t, os.WriteFile(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), []byte(text), 0o600))
}

func TestCredentialSources(t *testing.T) {
	server := s3test.Start(t)
	o := s3.Options{URL: server.URL("")}
	open := func() error {
		b, err := s3.Open(t.Context(), o)
		if err == nil {
			require.NoError(t, b.(*s3.Store).Close())
		}
		return err
	}
	t.Run("environment", func(t *testing.T) {
		noEnvironment(t)
		t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
		require.NoError(t, open())
	})
	t.Run("profile", func(t *testing.T) {
		noEnvironment(t)
		t.Setenv("AWS_PROFILE", "archive")
		writeProfile(t, "archive", server.AccessKey, server.SecretKey, "")
		require.NoError(t, open())
	})
	t.Run("container", func(t *testing.T) {
		noEnvironment(t)
		metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":"","Expiration":%q}`,
				server.AccessKey, server.SecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}))
		t.Cleanup(metadata.Close)
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.URL)
		require.NoError(t, open())
	})
	t.Run("none", func(t *testing.T) {
		noEnvironment(t)
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/")
		err := open()
		require.ErrorIs(t, err, bucket.ErrDenied)
		for _, text := range []string{"no credentials were found", "AWS_ACCESS_KEY_ID", "shared files", "metadata"} {
			require.ErrorContains(t, err, text)
		}
		require.NotContains(t, err.Error(), "\n")
		t.Log(err)
	})
}

// TestExpiredCredentials: when the store says that they have expired, new ones are read and the request is sent again, a
// conditional put too, because the refused one had no effect.
func TestExpiredCredentials(t *testing.T) {
	noEnvironment(t)
	t.Setenv("AWS_REGION", "eu-test-1")
	writeProfile(t, "default", "key", "secret", "old")
	var requests, refused atomic.Int64
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-test-1/") {
			t.Errorf("the region is not signed: %s", r.Header.Get("Authorization"))
		}
		if r.Header.Get("X-Amz-Security-Token") == "old" && requests.Load() > 1 {
			refused.Add(1)
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`)
			if refused.Load() == 1 {
				writeProfile(t, "default", "key", "secret", "new")
			}
			return
		}
		if r.Method == http.MethodPut {
			w.Header().Set("ETag", `"e1"`)
			return
		}
		fmt.Fprint(w, `<ListBucketResult><Name>logs</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>`)
	}))
	t.Cleanup(store.Close)
	b := s3test.OpenOptions(t, s3.Options{URL: bucket.URL{Scheme: "s3", Bucket: "logs", Endpoint: strings.TrimPrefix(store.URL, "http://"), Plain: true}})
	info, err := b.Put(context.Background(), headOp, "x", bucket.BytesBody([]byte("x")), bucket.Condition{IfNoneMatch: true})
	require.NoError(t, err)
	require.Equal(t, "e1", info.ETag)
	require.EqualValues(t, 1, refused.Load())
	// Credentials that stay expired are an error, not a loop.
	writeProfile(t, "default", "key", "secret", "old")
	refused.Store(1)
	o := s3.Options{URL: bucket.URL{Scheme: "s3", Bucket: "logs", Endpoint: strings.TrimPrefix(store.URL, "http://"), Plain: true}}
	_, err = s3.Open(context.Background(), o)
	require.ErrorIs(t, err, bucket.ErrDenied)
	require.ErrorContains(t, err, "have expired")
	require.EqualValues(t, 4, refused.Load())
}
