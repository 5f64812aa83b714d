// Package system starts brokers of every kind that is compared, each as processes of its own with pinned versions.
//
// Each kind has a file that registers its systems from init. Processes are started with process.Launch (bench/process), which pins them,
// ends them with this program, and knows what they started in turn; process.FreeAddress gives ports.
package system

import (
	"context"

	"github.com/tierbroker/tierbroker/bench/compare/load"
)

// Durability says what an acknowledgement means. Only equals are compared.
type Durability string

// Durabilities.
const (
	PageCache Durability = "page cache" // the system's buffers have it: it survives kill -9, not a loss of power
	Fsync     Durability = "fsync"      // it is on the disk
	InBucket  Durability = "bucket"     // it is in the object store
)

// System is one kind of broker with one kind of settings.
type System struct {
	Name       string // as in reports and in -systems: "tierbroker-async", "kafka", "kafka-fsync", "nats", ...
	Version    string
	Protocol   load.Protocol
	Durability Durability
	Tiered     bool     // what is old moves to an object store (or, with Kafka's own, to files) and is read from there
	Settings   []string // what differs from the defaults, a line each, for the report
	// TopicConfigs are settings that each topic is created with, beside those of the scenario.
	TopicConfigs map[string]string

	// Install fetches or builds what Start needs, if it is not there; it may take minutes and reports progress in lines.
	Install func(ctx context.Context, say func(string)) error
	// Start runs the broker over a directory, empty or left by an earlier run, and returns when it serves.
	Start func(ctx context.Context, p Place) (*Running, error)
}

// Place is where and how a broker runs.
type Place struct {
	Dir    string   // data, all of it: the scenario removes Dir and Dir.log when it is done; logs go to Dir.log
	CPUs   []int    // processors that its processes are pinned to; nil for all
	Bucket *Bucket  // S3 server for tiered systems that use one; nil for others
	Args   []string // further flags or settings, for one scenario
}

// Bucket is an S3 server's address and what to sign with.
type Bucket struct{ Endpoint, Name, AccessKey, SecretKey, Region string }

// Running is a started broker.
type Running struct {
	Address string // what clients connect to
	Admin   string // tierbroker's admin server, "" for others
	PIDs    func() []int
	// Stop ends it in an orderly way and Kill with SIGKILL; both wait until the processes are gone.
	Stop func(ctx context.Context) error
	Kill func() error
	// Tier moves everything that is closed of a topic to the object store and drops the local copy, as far as the system can be told to;
	// it returns when reads of it come from there. Nil where Tiered is false.
	Tier func(ctx context.Context, topic string) error
}
