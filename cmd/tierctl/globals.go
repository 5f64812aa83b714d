package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultBootstrap = "127.0.0.1:9092"
	defaultAdmin     = "http://127.0.0.1:9644"
)

// globals are the flags that every command has, resolved.
type globals struct {
	Bootstrap string
	Admin     string
	Bucket    string
	Context   string
	Output    string
}

func (g *globals) addFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&g.Bootstrap, "bootstrap", "", "Kafka address HOST:PORT, several separated by commas (default "+defaultBootstrap+")")
	f.StringVar(&g.Admin, "admin", "", "URL of a node's admin API, several separated by commas (default "+defaultAdmin+")")
	f.StringVar(&g.Bucket, "bucket", "", "URL of the archive's bucket: file:///PATH or s3://NAME/PREFIX?endpoint=...&region=...")
	f.StringVar(&g.Context, "context", "", "context of the contexts file to use (see tierctl context --help)")
	f.StringVarP(&g.Output, "output", "o", "table", "form of the output: table, json or yaml")
}

// resolve fills what no flag has set.
func (g *globals) resolve(cmd *cobra.Command) error {
	switch g.Output {
	case outputTable, outputJSON, outputYAML:
	default:
		return usagef("--output must be table, json or yaml, not %q", g.Output)
	}
	// The commands that mend the contexts file must work on a broken one.
	if cmd.Name() == "context" || cmd.HasParent() && cmd.Parent().Name() == "context" {
		return nil
	}
	c, err := loadContexts()
	if err != nil {
		return err
	}
	name := first(g.Context, os.Getenv("TIERCTL_CONTEXT"), c.Current)
	entry, ok := c.Contexts[name]
	if !ok && name != "" {
		return usagef("there is no context %q in %s (tierctl context list shows them)", name, c.path)
	}
	g.Bootstrap = first(g.Bootstrap, os.Getenv("TIERCTL_BOOTSTRAP"), entry.Bootstrap, defaultBootstrap)
	g.Admin = strings.TrimSuffix(first(g.Admin, os.Getenv("TIERCTL_ADMIN"), entry.Admin, defaultAdmin), "/")
	g.Bucket = first(g.Bucket, os.Getenv("TIERCTL_BUCKET"), entry.Bucket)
	return nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// kafka opens a client. Failures to reach a broker show at the first request.
func (g *globals) kafka(opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(g.Bootstrap, ",")
	base := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.ClientID("tierctl"), kgo.RequestRetries(3)}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return client, nil
}

// reach opens a client and asks the broker for a sign of life, so that a wrong
// address fails in seconds.
func (g *globals) reach(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := g.kafka(opts...)
	if err != nil {
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Ping(ping); err != nil {
		client.Close()
		return nil, fmt.Errorf("no Kafka broker answers at %s (is it running? --bootstrap names another): %w", g.Bootstrap, err)
	}
	return client, nil
}

// unreachable adds to an error of a Kafka request what was asked and where.
func (g *globals) unreachable(what string, err error) error {
	return fmt.Errorf("%s at %s: %w", what, g.Bootstrap, err)
}
