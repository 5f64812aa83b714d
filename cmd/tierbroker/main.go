// Command tierbroker is the broker daemon.
//
//	tierbroker [run]         start a broker
//	tierbroker check-config  check the configuration without starting anything
//	tierbroker version       print the version
//
// It composes the packages and holds no logic of its own: configuration, the
// lock and identity of the data directory, the bucket and its probe, the cluster
// client (with etcd inside unless endpoints are given), the controller, the
// partitions, the Kafka front door and the admin server, in this order; it stops
// them in the opposite order.
//
// Exit codes: 0 after a signal, 1 for a failure of ours, 2 for something that
// the operator has to change, told in one sentence.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

// version is set by the linker.
var version = "dev"

const (
	exitInternal = 1
	exitUser     = 2
)

// userError is a mistake that the operator can correct.
type userError struct{ error }

func (e userError) Unwrap() error { return e.error }

// mistake makes an error of the operator's kind.
func mistake(format string, args ...any) error { return userError{fmt.Errorf(format, args...)} }

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), minProcs))
	}
	os.Exit(execute(os.Args[1:]))
}

// minProcs is how many threads run Go code at least. With a single processor Go would run one goroutine for up to 10 ms before it looks at the
// network again; with several threads the system shares the processor among them, and those that mostly wait go first.
// On one processor the p99 of produce beside a cold replay halved, and cold replay was a third faster.
const minProcs = 4

func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "tierbroker: "+err.Error())
	if errors.As(err, new(userError)) {
		return exitUser
	}
	return exitInternal
}

func newRoot() *cobra.Command {
	run := newRun()
	root := &cobra.Command{
		Use:           "tierbroker",
		Short:         "A Kafka-compatible broker whose archive lives in an S3 bucket",
		Long:          runHelp,
		Example:       runExamples,
		Version:       admin.Build("tierbroker", version),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          run.RunE,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return mistake("%w (see tierbroker --help)", err)
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	addConfigFlags(root)
	root.AddCommand(run, newCheckConfig(), newVersion())
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return mistake("unknown command %q (there are run, check-config, version)", args[0])
	}
	return nil
}
