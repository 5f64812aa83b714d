// Command tierctl administers a tierbroker cluster and reads its archive.
//
//	tierctl topic ...    list, describe, create, alter, delete, roll, evict
//	tierctl group ...    list, describe, reset, delete
//	tierctl cluster ...  whether all is well, and if not what to do; restore
//	tierctl broker ...   list, describe, drain, undrain, remove
//	tierctl partition .. list, move, moves, cancel, force-move
//	tierctl rebalance .. plan, apply, status, stop, auto
//	tierctl produce      lines of files or of standard input, as records
//	tierctl consume      records from an offset or a time
//	tierctl archive ...  list, print and verify the archive, without a broker
//	tierctl dump ...     commit log, index, objects and heads, for developers
//	tierctl context ...  names for the addresses of several clusters
//	tierctl version      what this program was built from
//
// Where things are is taken from flags, then from TIERCTL_BOOTSTRAP,
// TIERCTL_ADMIN and TIERCTL_BUCKET, then from the current context, then from
// defaults that fit a broker on this machine.
//
// Exit codes: 0 done, 1 failed or a problem was found, 2 wrong usage. Results go
// to standard output, everything else to standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

// version is set by the linker.
var version = "dev"

const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line that can't be carried out.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errProblems says that the command worked and found problems, which it has
// already told.
var errProblems = errors.New("problems were found")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	return exitCode(ctx, root.ExecuteContext(ctx))
}

// exitCode tells a person what went wrong, and the shell that something did.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errProblems):
		return exitFailed
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "tierctl: interrupted")
		return exitFailed
	}
	fmt.Fprintln(os.Stderr, "tierctl: "+err.Error())
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "tierctl",
		Short: "Administer a tierbroker cluster and read its archive",
		Long: `Administer a tierbroker cluster and read its archive.

Topics are managed through a broker (--bootstrap, --admin); "archive" reads the
bucket itself and needs no broker. "tierctl context" keeps the addresses of
several clusters under names.`,
		Example: `  tierctl topic create logs --partitions 3 --config retention.ms=-1
  tierctl produce logs Zookeeper.log --timestamp-pattern '^(\S+ \S+)' --timestamp-format log4j
  tierctl topic roll logs && tierctl topic evict logs
  tierctl consume logs --from 2015-07-29T19:00:00Z --count 10
  tierctl archive verify --bucket 's3://archive?endpoint=http://10.0.0.5:9000&region=us-east-1'`,
		Version:       admin.Build("tierctl", version),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return g.resolve(cmd) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	g.addFlags(root)
	root.AddCommand(newTopic(g), newGroup(g), newCluster(g), newBroker(g), newPartition(g), newRebalance(g), newProduce(g), newConsume(g), newArchive(g), newDump(g), newContext(g), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit, and what it was built with",
		Example: "  tierctl version",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), admin.Build("tierctl", version))
			return err
		},
	}
}

// group makes a command that only holds others.
func group(use, short, long, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", near[0])
	}
	return usagef("%s has no command %q%s (there are %s)", cmd.CommandPath(), name, hint, strings.Join(names, ", "))
}

// args makes a check of the number of arguments whose error names what is missing.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usagef("%s: expected %s, got %d arguments\nusage: %s", cmd.CommandPath(), what, len(args), cmd.UseLine())
		}
		return nil
	}
}
