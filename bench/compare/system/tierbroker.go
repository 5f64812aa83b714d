package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/process"
)

func init() {
	for durability, means := range map[string]Durability{"async": PageCache, "sync": Fsync, "object": InBucket} {
		register(System{
			Name: "tierbroker-" + durability, Version: Commit(), Protocol: load.Kafka, Durability: means, Tiered: true,
			Settings:     []string{"tierbroker.durability=" + durability},
			TopicConfigs: map[string]string{"tierbroker.durability": durability},
			Install:      buildTierbroker, Start: startTierbroker,
		})
	}
}

// root is the main module's directory: the program runs from its sources.
func root() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "..", "..", "..")
	if _, err := os.Stat(filepath.Join(dir, "cmd", "tierbroker")); err != nil {
		return "", fmt.Errorf("the sources that this program was built from are gone: %w", err)
	}
	return dir, nil
}

// Commit names the sources' version, with "-dirty" where files were changed; "unknown" outside of a repository.
func Commit() string {
	dir, err := root()
	if err != nil {
		return "unknown"
	}
	text, err := exec.Command("git", "-C", dir, "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func tierbrokerBinary() (string, error) {
	dir, err := root()
	return filepath.Join(dir, "bin", "compare", "tierbroker"), err
}

func buildTierbroker(ctx context.Context, say func(string)) error {
	dir, err := root()
	if err != nil {
		return err
	}
	binary, err := tierbrokerBinary()
	if err != nil {
		return err
	}
	say("go build ./cmd/tierbroker")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", binary, "./cmd/tierbroker")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

func startTierbroker(ctx context.Context, p Place) (*Running, error) {
	binary, err := tierbrokerBinary()
	if err != nil {
		return nil, err
	}
	o := process.Options{Binary: binary, Dir: p.Dir, Args: p.Args, CPUs: p.CPUs}
	if b := p.Bucket; b != nil {
		query := url.Values{"endpoint": {b.Endpoint}, "region": {b.Region}}
		o.Args = append(o.Args, "--bucket", "s3://"+b.Name+"/bench?"+query.Encode())
		o.Env = []string{"AWS_ACCESS_KEY_ID=" + b.AccessKey, "AWS_SECRET_ACCESS_KEY=" + b.SecretKey}
	}
	b, err := process.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Running{
		Address: b.Kafka, Admin: b.Admin, PIDs: func() []int { return []int{b.PID} }, Stop: b.Stop, Kill: b.Kill,
		Tier: func(ctx context.Context, topic string) error {
			return errors.Join(actOn(ctx, b.Admin, topic, "roll"), actOn(ctx, b.Admin, topic, "evict"))
		},
	}, nil
}

// actOn asks the admin API to roll or evict all of a topic, as tierctl does.
func actOn(ctx context.Context, address, topic, what string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/topics/"+url.PathEscape(topic)+"/"+what, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	var answer struct {
		Failed     int
		Partitions []struct{ Error string }
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(text, &answer) != nil || answer.Failed > 0 {
		return fmt.Errorf("%s %s: %s: %.500s", what, topic, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
