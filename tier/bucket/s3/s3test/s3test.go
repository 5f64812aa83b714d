// Package s3test runs a real S3 server for tests: versitygw, or MinIO when TIERBROKER_TEST_S3=minio. The program is looked up
// in TIERBROKER_VERSITYGW (TIERBROKER_MINIO), then in .tools/bin of the repository, then in PATH. A missing one fails the test:
// a suite that passes because it was skipped proves nothing.
package s3test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
)

// Region is the region of every server.
const Region = "us-east-1"

const startTimeout = 30 * time.Second

// Server is a running S3 server on 127.0.0.1 with one empty bucket.
type Server struct {
	Addr                 string // HOST:PORT
	AccessKey, SecretKey string
	Bucket               string
	Dir                  string // where its data is

	t    testing.TB
	kind kind

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
	out  *bytes.Buffer
}

// kind is a server program.
type kind struct {
	name, program, env string
	args               func(s *Server) []string
	environ            func(s *Server) []string
}

var versitygw = kind{
	name: "versitygw", program: "versitygw", env: "TIERBROKER_VERSITYGW",
	args: func(s *Server) []string {
		return []string{"--port", s.Addr, "--region", Region, "--quiet", "posix", s.Dir}
	},
	environ: func(s *Server) []string {
		return []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey}
	},
}

var minio = kind{
	name: "minio", program: "minio", env: "TIERBROKER_MINIO",
	args: func(s *Server) []string { return []string{"server", "--quiet", "--address", s.Addr, s.Dir} },
	environ: func(s *Server) []string {
		return []string{"MINIO_ROOT_USER=" + s.AccessKey, "MINIO_ROOT_PASSWORD=" + s.SecretKey, "MINIO_UPDATE=off",
			"MINIO_BROWSER=off", "MINIO_CI_CD=1", "MINIO_SITE_REGION=" + Region}
	},
}

// Start starts the server that TIERBROKER_TEST_S3 names and stops it at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	k := versitygw
	switch name := os.Getenv("TIERBROKER_TEST_S3"); name {
	case "", "versitygw":
	case "minio":
		k = minio
	default:
		t.Fatalf("TIERBROKER_TEST_S3=%q: versitygw and minio are known", name)
	}
	s := &Server{t: t, kind: k, AccessKey: "test" + rand.Text()[:12], SecretKey: rand.Text(), Bucket: "tierbroker-test", Dir: t.TempDir()}
	t.Cleanup(s.Stop)
	var err error
	for range 5 {
		s.Addr = freeAddr(t)
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// Name is the name of the server program.
func (s *Server) Name() string { return s.kind.name }

// URL is the bucket's, with prefix below it.
func (s *Server) URL(prefix string) bucket.URL { return s.URLAt(s.Addr, prefix) }

// URLAt is URL through a proxy at addr.
func (s *Server) URLAt(addr, prefix string) bucket.URL {
	return bucket.URL{Scheme: bucket.SchemeS3, Bucket: s.Bucket, Prefix: prefix, Endpoint: addr, Plain: true, Region: Region, PathStyle: true}
}

// Options are those that open URL(prefix).
func (s *Server) Options(prefix string) s3.Options {
	return s3.Options{URL: s.URL(prefix), AccessKey: s.AccessKey, SecretKey: s.SecretKey}
}

// Environ is what a child process needs to find the credentials.
func (s *Server) Environ() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=" + Region}
}

// Open opens the bucket with keys below prefix, and closes it at the end of the test.
func (s *Server) Open(t testing.TB, prefix string) bucket.Bucket {
	t.Helper()
	return OpenOptions(t, s.Options(prefix))
}

// OpenOptions opens the bucket of o and closes it at the end of the test.
func OpenOptions(t testing.TB, o s3.Options) bucket.Bucket {
	t.Helper()
	b, err := s3.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := b.(interface{ Close() error }); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return b
}

// Stop kills the server. Start it again with Restart.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("stop %s: %v", s.kind.name, err)
	}
	<-s.gone
	s.cmd = nil
}

// Restart starts a stopped server again, at the same address with the same data.
func (s *Server) Restart() error { return s.start() }

// start runs the program and waits until it answers with our bucket. The credentials are random, so nobody else can.
func (s *Server) start() error {
	path, err := find(s.kind)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.out = &bytes.Buffer{}
	cmd := exec.Command(path, s.kind.args(s)...)
	cmd.Env = append(os.Environ(), s.kind.environ(s)...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Start(); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("start %s: %w", path, err)
	}
	gone := make(chan struct{})
	s.cmd, s.gone = cmd, gone
	s.mu.Unlock()
	go func() {
		_ = cmd.Wait() // it is killed, so the error says nothing
		close(gone)
	}()
	if err := s.await(gone); err != nil {
		s.Stop()
		return fmt.Errorf("%s at %s: %w\n%s", s.kind.name, s.Addr, err, s.out)
	}
	return nil
}

func (s *Server) await(gone chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := s3.Create(ctx, s.Options(""))
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("it ended while starting (last answer: %w)", err)
		case <-ctx.Done():
			return fmt.Errorf("it did not start within %v: %w", startTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freeAddr returns an address that nobody listens on, below the ports that the kernel gives to outgoing connections.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+mathrand.IntN(32_768-10_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return addr
		}
	}
	t.Fatal("no free port found")
	return ""
}

func find(k kind) (string, error) {
	if path := os.Getenv(k.env); path != "" {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			path := filepath.Join(dir, ".tools", "bin", k.program)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if path, err := exec.LookPath(k.program); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("the S3 server %s is needed for this test and was found neither in %s, nor in .tools/bin, nor in PATH: `make tools` installs it",
		k.name, strings.TrimSpace(k.env))
}
