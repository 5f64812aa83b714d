package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

// contexts is the contexts file.
type contexts struct {
	Current  string                  `yaml:"current,omitempty"`
	Contexts map[string]contextEntry `yaml:"contexts"`

	path string
}

// contextEntry holds the addresses of one cluster.
type contextEntry struct {
	Bootstrap string `yaml:"bootstrap,omitempty" json:"bootstrap,omitempty"`
	Admin     string `yaml:"admin,omitempty" json:"admin,omitempty"`
	Bucket    string `yaml:"bucket,omitempty" json:"bucket,omitempty"`
}

// contextsPath is $TIERCTL_CONTEXTS, or contexts.yaml in the user's
// configuration folder.
func contextsPath() (string, error) {
	if p := os.Getenv("TIERCTL_CONTEXTS"); p != "" {
		return p, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "tierbroker", "contexts.yaml"), nil
}

// loadContexts reads the file; a missing one is empty.
func loadContexts() (*contexts, error) {
	c := &contexts{Contexts: map[string]contextEntry{}}
	path, err := contextsPath()
	if err != nil {
		return c, nil // no home directory: no contexts
	}
	c.path = path
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]contextEntry{}
	}
	return c, nil
}

func (c *contexts) save() error {
	if c.path == "" {
		return errors.New("save contexts: no home directory is known; set TIERCTL_CONTEXTS to a file")
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return fmt.Errorf("save contexts: %w", err)
	}
	next := c.path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("save contexts: %w", err)
	}
	return os.Rename(next, c.path)
}

func newContext(g *globals) *cobra.Command {
	return group("context", "Names for the addresses of several clusters",
		`Keeps the addresses of several clusters under names, as kubectl does. The file is
~/.config/tierbroker/contexts.yaml (or $TIERCTL_CONTEXTS). A flag wins over the
environment, the environment over the context.`,
		`  tierctl context set prod --bootstrap broker1:9092 --admin http://broker1:9644 --bucket 's3://archive?region=eu-west-1'
  tierctl context use prod
  tierctl context list`,
		newContextList(g), newContextSet(g), newContextUse(), newContextDelete())
}

func newContextList(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contexts", Example: "  tierctl context list", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			t := newTable("", "name", "bootstrap", "admin", "bucket")
			type row struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
				contextEntry
			}
			rows := []row{}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				e := c.Contexts[name]
				mark := ""
				if name == c.Current {
					mark = "*"
				}
				t.row(mark, name, dash(e.Bootstrap), dash(e.Admin), dash(e.Bucket))
				rows = append(rows, row{Name: name, Current: name == c.Current, contextEntry: e})
			}
			return g.print(cmd, rows, t)
		},
	}
}

func newContextSet(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "set NAME", Short: "Create or change a context from --bootstrap, --admin and --bucket",
		Example: "  tierctl context set local --bucket file:///srv/tierbroker/bucket",
		Args:    args(1, 1, "the name of a context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			e := c.Contexts[args[0]]
			flags := cmd.Flags()
			for name, field := range map[string]*string{"bootstrap": &e.Bootstrap, "admin": &e.Admin, "bucket": &e.Bucket} {
				if flags.Changed(name) {
					*field, _ = flags.GetString(name)
				}
			}
			c.Contexts[args[0]] = e
			if c.Current == "" {
				c.Current = args[0]
			}
			return c.save()
		},
	}
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Example: "  tierctl context use prod", Args: args(1, 1, "the name of a context"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return usagef("there is no context %q in %s", args[0], c.path)
			}
			c.Current = args[0]
			return c.save()
		},
	}
}

func newContextDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Forget a context", Example: "  tierctl context delete old", Args: args(1, 1, "the name of a context"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return usagef("there is no context %q in %s", args[0], c.path)
			}
			delete(c.Contexts, args[0])
			if c.Current == args[0] {
				c.Current = ""
			}
			return c.save()
		},
	}
}
