package cluster

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// TestEtcdThatGivesUp: what etcd would end the process with, in any goroutine, is an error of the client. Whoever asks
// afterwards is not kept waiting, and Close returns.
func TestEtcdThatGivesUp(t *testing.T) {
	for name, giveUp := range map[string]func(lg *zap.Logger){
		"fatal": func(lg *zap.Logger) { lg.Fatal("failed to save", zap.Error(syscall.ENOSPC)) },
		"panic": func(lg *zap.Logger) { lg.Named("raft").Sugar().Panicf("failed to save: %v", syscall.ENOSPC) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: t.TempDir()}})
			require.NoError(t, err)
			t.Cleanup(func() { // as nothing has stopped in truth
				require.ErrorIs(t, c.embedded.client.Close(), context.Canceled)
				c.embedded.etcd.Close()
			})
			require.NoError(t, c.Failure())
			go giveUp(c.embedded.etcd.GetLogger())
			<-c.Stopped()
			require.ErrorIs(t, c.Failure(), ErrStopped)
			require.ErrorContains(t, c.Failure(), "failed to save: no space left on device")
			<-c.run.Done()
			_, err = c.AllocateProducerIDs(ctx, 1)
			require.ErrorIs(t, err, ErrClosed)
			require.NoError(t, c.Close())
		})
	}
}
