// Package drive drives a broker in a closed loop with clients of one kind and says what that cost it. It is what the
// program load and the whole-process benchmarks share.
package drive

import "time"

// Phases of a measurement.
const (
	Produce = "produce"
	Consume = "consume" // what is there, from the start, again and again
)

// Clients that can drive.
const (
	Raw = "raw" // sends requests made beforehand; see package raw
	Kgo = "kgo" // franz-go, what a program would use
)

// Options say what is done to the broker. There are no defaults: Default has some.
type Options struct {
	Client       string // Raw or Kgo
	Topic        string
	Partitions   int // of the topic, when it is created
	Durability   string
	SegmentBytes int64 // segment.bytes of the topic; 0 leaves the default

	Record     int    // bytes of a record's value
	Batch      int    // bytes of a batch
	PerRequest int    // batches in a request, each to another partition (Raw)
	Codec      string // compression (Kgo)
	Clients    int    // each with connections of its own, and its own partitions as far as they reach
	Inflight   int    // requests under way per client (Raw)
	Acks       int    // -1 or 1
	FetchBytes int    // most bytes of one fetch

	Warm, Run time.Duration // before the measurement, and of it
	Profile   string        // CPU profiles go to PROFILE.produce and PROFILE.consume; "" for none
}

// Default is two producers of 1 KiB records in 256 KiB batches to ten partitions.
func Default() Options {
	return Options{Client: Raw, Topic: "load", Partitions: 10, Durability: "sync", Record: 1024, Batch: 256 << 10, PerRequest: 1, Codec: "none",
		Clients: 2, Inflight: 5, Acks: -1, FetchBytes: 4 << 20, Warm: 2 * time.Second, Run: 8 * time.Second}
}
