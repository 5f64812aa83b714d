package system

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/process"
)

const kfakeServer = "kfake-server"

func init() {
	servers[kfakeServer] = serveKfake
	for name, durability := range map[string]Durability{"kfake": PageCache, "kfake-fsync": Fsync} {
		register(System{
			Name: name, Version: "franz-go 2026-09-18", Protocol: load.Kafka, Durability: durability,
			Settings: []string{"a data directory; one lock, one goroutine for all requests: the protocol's price in Go, not a broker to run"},
			Start: func(ctx context.Context, p Place) (*Running, error) {
				return startKfake(ctx, p, durability)
			},
		})
	}
}

func startKfake(ctx context.Context, p Place, d Durability) (*Running, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	c, err := process.Launch(process.Command{
		Path: program, Args: []string{kfakeServer, address, p.Dir, string(d)}, Log: p.Dir + ".log", CPUs: p.CPUs,
	})
	if err != nil {
		return nil, err
	}
	if err := Listens(ctx, c, address); err != nil {
		return nil, err
	}
	return &Running{Address: address, PIDs: c.PIDs, Stop: c.Stop, Kill: c.Kill}, nil
}

// Listens waits until somebody accepts connections at an address; when the process ends, or ctx does, it is ended with that error.
func Listens(ctx context.Context, c *process.Child, address string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-c.Exited():
			return c.Ended()
		case <-ctx.Done():
			_ = c.Kill() // the first error says more
			return fmt.Errorf("nobody listens on %s: %w", address, context.Cause(ctx))
		}
	}
}

// serveKfake is the process: kfake-server ADDRESS DIR DURABILITY.
func serveKfake(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		_, port, err := net.SplitHostPort(args[0])
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(n), kfake.DataDir(args[1])}
		if args[2] == string(Fsync) {
			opts = append(opts, kfake.SyncWrites())
		}
		c, err := kfake.NewCluster(opts...)
		if err != nil {
			return err
		}
		<-ctx.Done()
		c.Close()
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}
