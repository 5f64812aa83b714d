package main

import "github.com/spf13/cobra"

func newCluster(g *globals) *cobra.Command {
	return group("cluster", "The cluster as a whole: status, restore",
		`Says how the whole cluster is, and builds a new one from a bucket. For the status any
node may be asked (--admin takes several addresses, separated by commas, and the
first that answers is asked).`,
		`  tierctl cluster status
  tierctl cluster status --wait 1m && echo "all is well"
  tierctl cluster restore --bucket s3://archive?region=eu-central-1 --dry-run
  tierctl cluster restore --bucket s3://archive?region=eu-central-1 --data-dir /var/lib/tierbroker`,
		newClusterStatus(g), newClusterRestore(g))
}
