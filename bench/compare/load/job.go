package load

import (
	"errors"
	"time"
)

// Job is what one process of load does: it produces, consumes, or both, and measures a window of that.
//
// Producing alone, and both, are measured for Run after Warm, or, with Produce.Bytes, from the first record to the last acknowledgement.
// Consuming alone is measured from before its consumers are made until Consume.Records were there, or, without that number,
// for Run after Warm. With both, consumers are made first and begin at the end of the topic.
type Job struct {
	Protocol Protocol
	Address  string
	Topic    Topic
	Create   bool // the topic first
	Produce  *Produce
	Consume  *Consume

	Warm, Run time.Duration
	// Limit is the longest time after which the process gives up; 0 for the window and two minutes.
	Limit time.Duration
}

// Produce says how records are made. Partitions are dealt out to the producers in turn; with fewer partitions than producers, several write to one.
type Produce struct {
	Producers int
	Options   ProducerOptions
	Record    int // bytes of a record's value, at least 8
	Run       int // records that go to one partition before the next one's turn; 0 for 1
	// Rate is in records per second over all producers: an open loop, in which a record's time counts from when it should have been sent.
	// 0 is a closed loop: as fast as the producers let.
	Rate float64
	// OneInFlight lets a producer of a closed loop wait for each record's acknowledgement before the next.
	OneInFlight bool
	// Premade sends batches of Options.BatchBytes that were made beforehand, in a closed loop, where the protocol's driver can (see Premade).
	Premade bool
	// Bytes ends a closed loop after that many bytes of values in all, instead of after Run.
	Bytes int64
}

// Consume says who reads what.
type Consume struct {
	FanOut    int // how often the whole topic is read
	Consumers int // of each reading; they share the partitions
	Options   ConsumerOptions
	Records   int64 // ends when each reading took so many in all; 0 for Run
}

func (j *Job) check() error {
	switch {
	case j.Produce == nil && j.Consume == nil && !j.Create:
		return errors.New("a job that does nothing")
	case j.Topic.Partitions < 1:
		return errors.New("a topic without partitions")
	case j.Produce != nil && (j.Produce.Producers < 1 || j.Produce.Record < stampBytes):
		return errors.New("producers: at least one, and records of at least 8 bytes")
	case j.Consume != nil && (j.Consume.FanOut < 1 || j.Consume.Consumers < 1):
		return errors.New("consumers: at least one")
	case j.Produce != nil && j.Produce.Bytes > 0 && (j.Produce.Rate > 0 || j.Consume != nil):
		return errors.New("a number of bytes is for a closed loop alone")
	case j.Produce != nil && j.Produce.Premade && (j.Produce.Bytes > 0 || j.Produce.Rate > 0 || j.Produce.Options.BatchBytes < 1):
		return errors.New("requests made beforehand are for a closed loop of some length, with a size of batches")
	case j.Run <= 0 && (j.Produce != nil && j.Produce.Bytes == 0 || j.Consume != nil && j.Consume.Records == 0):
		return errors.New("no length of the window")
	}
	return nil
}

// Outcome is what the clients saw in the window.
type Outcome struct {
	Seconds  float64 // length of the window
	Produced Total   // acknowledged in it
	Consumed Total   // over all readings
	// Ack is the time until a record's acknowledgement, from its sending (closed loop, a sample) or from when it should have been sent (open
	// loop, every record). EndToEnd is the time until a consumer had it, from the same. Nil where nothing was measured.
	Ack, EndToEnd *Distribution
	// Unfinished records of an open loop should have been sent in the window and were not acknowledged long after it; they are in Ack with the time until then.
	Unfinished int64
	CPU        time.Duration // used by this process in the window
	Error      string        // why the rest means nothing
}

// Total counts records, and bytes of their values.
type Total struct{ Records, Bytes int64 }

// MBps is a total's rate over the window in 10^6 bytes a second.
func (o *Outcome) MBps(t Total) float64 { return float64(t.Bytes) / 1e6 / o.Seconds }

// Mark is a moment of which a worker tells who started it.
type Mark string

// Marks: the measured window begins and ends.
const (
	Begin Mark = "begin"
	End   Mark = "end"
)
