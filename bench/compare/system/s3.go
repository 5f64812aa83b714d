package system

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/process"
)

// S3 is an S3 server over a directory, a process of its own: versitygw, which the tests use, too. It keeps an access log, from which
// requests are counted.
type S3 struct {
	Bucket
	Log account.AccessLog

	child *process.Child
}

const (
	s3Region = "us-east-1"
	s3Bucket = "archive"
	s3Wait   = 30 * time.Second
	// keyRoot is what tierbroker's keys begin with: the prefix that it is started with.
	keyRoot = "bench/"
)

// StartS3 starts a server that keeps its objects below dir, pinned to cpus (nil for all), and makes one empty bucket.
func StartS3(ctx context.Context, dir string, cpus []int) (*S3, error) {
	path, err := findVersitygw()
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	objects := filepath.Join(dir, "objects")
	if err := os.MkdirAll(objects, 0o755); err != nil {
		return nil, err
	}
	s := &S3{Bucket: Bucket{Endpoint: "http://" + address, Name: s3Bucket, AccessKey: "bench" + rand.Text()[:12], SecretKey: rand.Text(), Region: s3Region}}
	s.Log = account.AccessLog{Path: filepath.Join(dir, "access.log"), Root: keyRoot}
	// Connections are kept, as any real S3 does; without the flag this server closes each after one answer.
	s.child, err = process.Launch(process.Command{
		Path: path, Args: []string{"--port", address, "--region", s3Region, "--quiet", "--keep-alive", "--access-log", s.Log.Path, "posix", objects},
		Env: []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey}, Log: filepath.Join(dir, "server.log"), CPUs: cpus,
	})
	if err != nil {
		return nil, err
	}
	s.Log.PID = s.child.PID
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("S3 server: %w", err), s.Close())
	}
	return s, nil
}

// create makes the bucket as soon as the server answers. The credentials are random, so nobody else can answer for it.
func (s *S3) create(ctx context.Context) error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s3Wait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.MakeBucket(ctx, s.Name, minio.MakeBucketOptions{Region: s.Region})
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.child.Exited():
			return s.child.Ended()
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

// Client is a client for tools and for bare reads.
func (s *S3) Client() (*minio.Client, error) {
	return minio.New(strings.TrimPrefix(s.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: s.Region, BucketLookup: minio.BucketLookupPath,
	})
}

// PIDs are the server's processes.
func (s *S3) PIDs() []int { return s.child.PIDs() }

// Close ends the server. Its objects stay.
func (s *S3) Close() error { return s.child.Kill() }

// findVersitygw looks where `make tools` puts it, then in PATH.
func findVersitygw() (string, error) {
	if path := os.Getenv("TIERBROKER_VERSITYGW"); path != "" {
		return path, nil
	}
	dir, err := root()
	if err != nil {
		return "", err
	}
	if path := filepath.Join(dir, ".tools", "bin", "versitygw"); exists(path) {
		return path, nil
	}
	path, err := exec.LookPath("versitygw")
	if err != nil {
		return "", fmt.Errorf("the S3 server versitygw is needed and was found neither in TIERBROKER_VERSITYGW, nor in .tools/bin, nor in PATH: `make tools` installs it: %w", err)
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Root is the main module's directory, from whose sources this program was built.
func Root() (string, error) { return root() }
