package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/process"
)

const (
	natsModule  = "github.com/nats-io/nats-server/v2"
	natsVersion = "v2.15.2"
)

func init() {
	layout := "JetStream with file storage, one replica: up to 16 partitions are a stream with a subject each (see load's Topic); more than 16 are several such streams"
	register(natsSystem(System{
		Name: "nats", Durability: PageCache,
		Settings: []string{layout, "sync_interval as it is (2 minutes): an acknowledged record is in the page cache"},
	}, ""))
	register(natsSystem(System{
		Name: "nats-fsync", Durability: Fsync, Settings: []string{layout, "sync_interval: always"},
	}, "sync_interval: always"))
}

// natsSystem completes a system that is NATS with a further setting of JetStream.
func natsSystem(s System, setting string) System {
	s.Version, s.Protocol = natsVersion, load.NATS
	s.Install = func(ctx context.Context, say func(string)) error {
		_, err := goInstall(ctx, natsModule, natsVersion, say)
		return err
	}
	s.Start = func(ctx context.Context, p Place) (*Running, error) { return startNATS(ctx, p, setting) }
	return s
}

func startNATS(ctx context.Context, p Place, setting string) (*Running, error) {
	program, err := goInstall(ctx, natsModule, natsVersion, func(string) {})
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("listen: %q\nserver_name: bench\njetstream {\n  store_dir: %q\n  %s\n}\n", address, p.Dir, setting)
	for _, arg := range p.Args {
		text += arg + "\n"
	}
	config := filepath.Join(p.Dir, "nats.conf")
	if err := errors.Join(os.MkdirAll(p.Dir, 0o755), os.WriteFile(config, []byte(text), 0o644)); err != nil {
		return nil, err
	}
	child, err := process.Launch(process.Command{Path: program, Args: []string{"-c", config}, Log: p.Dir + ".log", CPUs: p.CPUs})
	if err != nil {
		return nil, err
	}
	err = await(ctx, child, func(ctx context.Context) error {
		nc, err := nats.Connect("nats://"+address, nats.NoReconnect())
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		_, err = js.AccountInfo(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, child.Kill())
	}
	return &Running{Address: address, PIDs: child.PIDs, Stop: child.Stop, Kill: child.Kill}, nil
}
