package main

import "github.com/spf13/cobra"

func newCluster(g *globals) *cobra.Command {
	return group("cluster", "The cluster as a whole",
		`Commands about the cluster as a whole.`,
		`  tierctl cluster restore --bucket s3://archive?region=eu-central-1 --dry-run
  tierctl cluster restore --bucket s3://archive?region=eu-central-1 --data-dir /var/lib/tierbroker`,
		newClusterRestore(g))
}
