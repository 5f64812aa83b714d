package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Start a broker (what tierbroker without a command does)",
		Long:    runHelp,
		Example: runExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			log, err := newLogger(c)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context(), log)
			defer stop()
			return runDaemon(ctx, c, log)
		},
	}
	addConfigFlags(cmd)
	return cmd
}

// untilSignal ends the context at the first SIGINT or SIGTERM, and the process at
// the second.
func untilSignal(parent context.Context, log *zap.Logger) (context.Context, func()) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			log.Info("stopping; another signal ends the process at once", zap.String("signal", s.String()))
			cancel(errSignal)
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(exitInternal)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

var errSignal = errors.New("a signal asked to stop")
