// Command load drives one broker in a closed loop and says what that cost: rates as the client saw them, and for each GB
// of record batches the broker's CPU seconds, memory, disk writes and bucket requests, taken from the system.
//
//	load -start bin/tierbroker -mode produce -run 10s
//	load -start bin/tierbroker -mode both -client kgo -record 1024 -partitions 16
//	load -bootstrap 127.0.0.1:9092 -admin 127.0.0.1:9644 -mode consume -topic access
//
// With -start it runs a broker of its own over a fresh directory; flags behind -- go to that broker. The client raw sends
// requests that were made beforehand, so that nearly all of the machine is the broker's; kgo is franz-go, what a
// program would use.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tierbroker/tierbroker/bench/drive"
	"github.com/tierbroker/tierbroker/bench/process"
)

type options struct {
	start, bootstrap, admin, dir, mode string
	asJSON, fill                       bool
	drive.Options
}

func main() {
	o := options{Options: drive.Default()}
	flag.StringVar(&o.start, "start", "", "program to start a broker with; empty: use the running one at -bootstrap")
	flag.StringVar(&o.dir, "dir", "", "where the started broker's data goes (default: a temporary folder, removed afterwards)")
	flag.StringVar(&o.bootstrap, "bootstrap", "127.0.0.1:9092", "Kafka address of a running broker")
	flag.StringVar(&o.admin, "admin", "127.0.0.1:9644", "admin address of a running broker")
	flag.StringVar(&o.mode, "mode", drive.Produce, "produce, consume (what is there, from the start, again and again) or both (one after the other)")
	flag.StringVar(&o.Client, "client", o.Client, "raw or kgo")
	flag.StringVar(&o.Topic, "topic", o.Topic, "topic; created when it is missing")
	flag.IntVar(&o.Partitions, "partitions", o.Partitions, "its partitions")
	flag.StringVar(&o.Durability, "durability", o.Durability, "its durability: sync or async")
	flag.Int64Var(&o.SegmentBytes, "segment-bytes", 0, "its segment.bytes; 0 leaves the default")
	flag.IntVar(&o.Record, "record", o.Record, "bytes of a record's value")
	flag.IntVar(&o.Batch, "batch", o.Batch, "bytes of a batch")
	flag.IntVar(&o.PerRequest, "per-request", o.PerRequest, "batches in one request, each to another partition (raw)")
	flag.StringVar(&o.Codec, "codec", o.Codec, "compression: none, gzip, snappy, lz4, zstd (kgo)")
	flag.IntVar(&o.Clients, "clients", o.Clients, "clients, each with a connection of its own")
	flag.IntVar(&o.Inflight, "inflight", o.Inflight, "requests under way per client (raw)")
	flag.IntVar(&o.Acks, "acks", o.Acks, "acks: -1 or 1")
	flag.IntVar(&o.FetchBytes, "fetch-bytes", o.FetchBytes, "most bytes of one fetch")
	flag.DurationVar(&o.Warm, "warm", o.Warm, "time before the measurement")
	flag.DurationVar(&o.Run, "run", o.Run, "time of the measurement")
	flag.StringVar(&o.Profile, "profile", "", "write CPU profiles of the measurement to FILE.produce and FILE.consume (a started broker serves them)")
	flag.BoolVar(&o.fill, "fill", false, "fill free memory with page cache first, as it is on a machine that has been up for a while")
	flag.BoolVar(&o.asJSON, "json", false, "one JSON object per phase")
	flag.Parse()
	if err := run(context.Background(), &o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, args []string) (err error) {
	var ballast process.Ballast
	defer func() { err = errors.Join(err, ballast.Close()) }()
	if o.fill {
		if err := ballast.Fill(os.TempDir()); err != nil {
			return err
		}
	}
	b, stop, err := broker(ctx, o, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := drive.EnsureTopic(ctx, b.Kafka, &o.Options); err != nil {
		return err
	}
	for _, phase := range []string{drive.Produce, drive.Consume} {
		if o.mode != phase && o.mode != "both" {
			continue
		}
		r, err := drive.Measure(ctx, b, &o.Options, phase)
		if err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		if o.asJSON {
			err = json.NewEncoder(os.Stdout).Encode(r)
		} else {
			_, err = fmt.Println(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// broker starts one, or finds the running one. stop ends what was started.
func broker(ctx context.Context, o *options, args []string) (b *process.Broker, stop func() error, err error) {
	if o.start == "" {
		b, err = process.Attach(o.bootstrap, o.admin)
		return b, func() error { return nil }, err
	}
	dir, clean := o.dir, func() error { return nil }
	if dir == "" {
		tmp, err := os.MkdirTemp("", "tierbroker-load-*")
		if err != nil {
			return nil, nil, err
		}
		dir, clean = filepath.Join(tmp, "data"), func() error { return os.RemoveAll(tmp) }
	}
	var env []string
	if o.Profile != "" {
		env = append(env, "TIERBROKER_PPROF=true")
	}
	b, err = process.Start(ctx, process.Options{Binary: o.start, Dir: dir, Args: args, Env: env})
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return b, func() error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return errors.Join(b.Stop(ctx), clean())
	}, nil
}
