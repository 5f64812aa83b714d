package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/restore"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

type restoreOptions struct {
	dataDir                string
	endpoints              []string
	prefix, user, password string
	ca, cert, key          string
	settings               restore.Settings
	gone, yes, dryRun      bool
}

const restoreHelp = `Builds a new cluster from the bucket alone: the same topics with their ids and settings, the same offsets and
record bytes, the same group positions. Old brokers, disks and etcd are not needed, and lose the bucket for ever:
if one of them still runs, it can't change anything there any more.

First it shows how far each partition can be restored: END is the first offset that is lost or was never written,
NEWEST the time of its newest record, WAL how many offsets come from WAL streams, NEXT where new records go on (the
offsets between END and NEXT may have been given out before and stay unused). Groups that stand behind an END are
listed; they go on with the first new record.

The new cluster state goes into the etcd of a controller's data directory (--data-dir, which must not hold anything
else), or into an existing etcd (--etcd-endpoints). Afterwards start "tierbroker run" there; the data
directories of old brokers must not be used again.

A living cluster that owns the bucket is asked for a sign of life (` + "its controller looks each 15 seconds; the answer is\nwaited for almost a minute" + `), and the restore refused if it gives one. --old-cluster-is-gone leaves that out.

A restore that was interrupted goes on when the same command is given again. If its etcd is lost, give --start-over with
an empty one. Exit code 1 with --dry-run: some partitions are damaged.`

func newClusterRestore(g *globals) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore --bucket URL (--data-dir DIR | --etcd-endpoints URL,...)",
		Short: "Build a new cluster from the bucket alone",
		Long:  restoreHelp,
		Example: `  tierctl cluster restore --bucket file:///srv/bucket --dry-run
  tierctl cluster restore --bucket file:///srv/bucket --data-dir /var/lib/tierbroker
  tierctl cluster restore --bucket 's3://archive?region=eu-central-1' --etcd-endpoints http://etcd-1:2379 --yes -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return g.restore(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of the node whose embedded etcd gets the cluster state")
	f.StringSliceVar(&o.endpoints, "etcd-endpoints", nil, "URLs of an existing etcd that gets the cluster state")
	f.StringVar(&o.prefix, "etcd-prefix", cluster.DefaultPrefix, "prefix of the cluster's keys in that etcd")
	f.StringVar(&o.user, "etcd-user", "", "user of that etcd")
	f.StringVar(&o.password, "etcd-password-file", "", "file with that user's password")
	f.StringVar(&o.ca, "etcd-ca", "", "file with the CA of that etcd's certificates")
	f.StringVar(&o.cert, "etcd-cert", "", "file with this client's certificate")
	f.StringVar(&o.key, "etcd-key", "", "file with this client's key")
	f.StringVar(&o.settings.ClusterID, "cluster-id", "", "id of the new cluster; default: a random one")
	f.BoolVar(&o.gone, "old-cluster-is-gone", false, "don't ask the old cluster for a sign of life")
	f.BoolVar(&o.settings.StartOver, "start-over", false, "give up an unfinished restore whose etcd is lost")
	f.BoolVar(&o.settings.LeaveDamaged, "leave-damaged", false, "restore all other partitions when some can't be")
	f.BoolVarP(&o.yes, "yes", "y", false, "don't ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what can be restored, change nothing")
	return cmd
}

// restoreReport is what a restore prints as JSON and YAML.
type restoreReport struct {
	*restore.Plan
	Groups []groupPosition `json:"groups_beyond_end"`
	Result *restore.Result `json:"result,omitempty"`
}

func (g *globals) restore(cmd *cobra.Command, o *restoreOptions) error {
	ctx := cmd.Context()
	if err := o.check(); err != nil {
		return err
	}
	b, err := g.openBucket(ctx)
	if err != nil {
		return err
	}
	bars := &stageBars{}
	defer bars.finish()
	ro := restore.Options{Bucket: b, Now: func() int64 { return time.Now().UnixMilli() }, Progress: bars.at}
	plan, err := restore.Read(ctx, ro)
	if errors.Is(err, catalog.ErrNoRoot) {
		return fmt.Errorf("%s holds no cluster: is it the right bucket and prefix?", g.Bucket)
	}
	if err != nil {
		return err
	}
	report := restoreReport{Plan: plan}
	if report.Groups, err = groupsBeyond(ctx, ro, plan); err != nil {
		return err
	}
	bars.finish()
	if g.Output == outputTable {
		if err := printPlan(cmd.OutOrStdout(), &report); err != nil {
			return err
		}
	}
	if !o.dryRun {
		if report.Result, err = o.run(cmd, ro, plan, bars); err != nil {
			return err
		}
	}
	if g.Output != outputTable {
		if err := g.print(cmd, &report); err != nil {
			return err
		}
	} else if report.Result != nil {
		o.whatNow(cmd, g.Bucket, report.Result)
	}
	if o.dryRun && len(plan.Damaged) > 0 {
		return errProblems
	}
	return nil
}

// check looks at flags and target before the bucket is asked.
func (o *restoreOptions) check() error {
	switch {
	case o.dataDir != "" && len(o.endpoints) > 0:
		return usagef("give --data-dir or --etcd-endpoints, not both")
	case o.dataDir == "" && len(o.endpoints) == 0 && !o.dryRun:
		return usagef("give --data-dir or --etcd-endpoints: where the new cluster's state goes (or --dry-run)")
	case o.dataDir == "":
		return nil
	}
	entries, err := os.ReadDir(o.dataDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return usagef("--data-dir: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"etcd", "LOCK", "lost+found"}, e.Name()) {
			return usagef("--data-dir %s is not empty: it holds %s; give a new one", o.dataDir, e.Name())
		}
	}
	return nil
}

// run asks whoever must be asked, and restores.
func (o *restoreOptions) run(cmd *cobra.Command, ro restore.Options, plan *restore.Plan, bars *stageBars) (*restore.Result, error) {
	ctx := cmd.Context()
	if len(plan.Damaged) > 0 && !o.settings.LeaveDamaged {
		return nil, fmt.Errorf("%s can't be restored: %s (partition %d: %s); --leave-damaged restores all others",
			plural(len(plan.Damaged), "partition"), plan.Damaged[0].Topic, plan.Damaged[0].Partition, plan.Damaged[0].What)
	}
	target, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer target.Close() //nolint:errcheck // what was written is committed
	resumes, err := restore.Resumes(plan, target, o.settings)
	if err != nil {
		return nil, err
	}
	if !resumes && !o.gone {
		cmd.PrintErrf("asking whether a cluster lives on this bucket: that takes up to %v\n", restore.Patience)
		err := restore.Quiet(ctx, ro, plan, restore.Patience)
		bars.finish()
		if errors.Is(err, restore.ErrAlive) {
			return nil, fmt.Errorf("refused: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	if !o.yes {
		question := "Build the new cluster? The old one loses this bucket."
		if resumes {
			question = "Go on with the restore that was begun?"
		}
		if err := confirm(cmd, question, "nothing was restored"); err != nil {
			return nil, err
		}
	}
	result, err := restore.Run(ctx, ro, plan, target, o.settings)
	bars.finish()
	if err != nil {
		return nil, fmt.Errorf("the restore is not finished; the same command goes on with it: %w", err)
	}
	return result, nil
}

// open connects to the etcd that gets the cluster state, or starts it.
func (o *restoreOptions) open(ctx context.Context) (*cluster.Restoration, error) {
	c := cluster.Options{Prefix: o.prefix, Endpoints: o.endpoints, Username: o.user}
	if o.dataDir != "" {
		c.Embedded = &cluster.EmbeddedOptions{Dir: filepath.Join(o.dataDir, "etcd")}
	}
	if o.user != "" {
		password, err := os.ReadFile(o.password)
		if err != nil {
			return nil, usagef("--etcd-password-file: %w", err)
		}
		c.Password = string(bytes.TrimRight(password, "\r\n"))
	}
	var err error
	if c.TLS, err = o.tls(); err != nil {
		return nil, err
	}
	target, err := cluster.OpenRestoration(ctx, c)
	switch {
	case errors.Is(err, cluster.ErrNotEmpty):
		return nil, fmt.Errorf("refused: %w: give one that is", err)
	case errors.Is(err, cluster.ErrInUse):
		return nil, fmt.Errorf("refused: %w", err)
	}
	return target, err
}

func (o *restoreOptions) tls() (*tls.Config, error) {
	if o.ca == "" && o.cert == "" {
		return nil, nil
	}
	c, err := cluster.ClientTLS(o.ca, o.cert, o.key)
	if err != nil {
		return nil, usagef("--etcd-ca, --etcd-cert, --etcd-key: %w", err)
	}
	return c, nil
}

// whatNow says how to start the new cluster.
func (o *restoreOptions) whatNow(cmd *cobra.Command, bucket string, r *restore.Result) {
	cmd.Printf("restored cluster %s: %s, %s\n", r.ClusterID, plural(r.Topics, "topic"), plural(r.Partitions, "partition"))
	if o.dataDir != "" {
		cmd.Printf("start it with: tierbroker run --data-dir %s --bucket '%s'\n", o.dataDir, bucket)
	} else {
		cmd.Printf("start brokers and controllers with this etcd, this bucket and new data directories\n")
	}
}
