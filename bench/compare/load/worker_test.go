package load

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

func work(t *testing.T, j Job) (o Outcome, marks []Mark, err error) {
	t.Helper()
	w := Worker{Log: filepath.Join(t.TempDir(), "log"), CPUs: []int{0}, grace: 200 * time.Millisecond}
	o, err = w.Do(t.Context(), j, func(m Mark) { marks = append(marks, m) })
	return o, marks, err
}

func TestWorkerIsAProcess(t *testing.T) {
	o, marks, err := work(t, Job{
		Protocol: memoryProtocol, Topic: Topic{Name: "t", Partitions: 2}, Create: true,
		Produce: &Produce{Producers: 2, Record: 32, Rate: 200}, Run: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	require.Equal(t, []Mark{Begin, End}, marks)
	require.Positive(t, o.Produced.Records)
	_, n := quantiles(t, o.Ack)
	require.EqualValues(t, 100, n)
}

func TestWorkerTellsWhatFailed(t *testing.T) {
	j := Job{Protocol: memoryProtocol, Address: "nowhere", Topic: Topic{Name: "t", Partitions: 1}, Produce: &Produce{Producers: 1, Record: 8}, Run: time.Second}
	_, _, err := work(t, j)
	require.ErrorContains(t, err, "nobody is there")
	j.Protocol = "semaphore"
	_, _, err = work(t, j)
	require.ErrorContains(t, err, `no client for "semaphore"`)
	j.Run = 0
	_, _, err = work(t, j)
	require.ErrorContains(t, err, "no length")
}

func TestWorkerThatHangsIsEnded(t *testing.T) {
	began := time.Now()
	_, _, err := work(t, Job{
		Protocol: memoryProtocol, Address: "hangs", Topic: Topic{Name: "t", Partitions: 1}, Create: true,
		Produce: &Produce{Producers: 1, Record: 8, Bytes: 80}, Limit: time.Second,
	})
	require.ErrorContains(t, err, "did not end")
	require.Less(t, time.Since(began), 30*time.Second)
}

func TestWorkerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := Worker{Log: filepath.Join(t.TempDir(), "log")}
	_, err := w.Do(ctx, Job{
		Protocol: memoryProtocol, Topic: Topic{Name: "t", Partitions: 1}, Create: true,
		Produce: &Produce{Producers: 1, Record: 8, Rate: 10}, Run: time.Hour,
	}, func(Mark) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
}

// The Kafka driver against a broker that is none of ours: what is produced is consumed, all of it, once.
func TestKafkaDriver(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer c.Close()
	topic := Topic{Name: "t", Partitions: 3}
	job := func(j Job) Outcome {
		j.Protocol, j.Address, j.Topic = Kafka, c.ListenAddrs()[0], topic
		o, _, err := work(t, j)
		require.NoError(t, err)
		return o
	}
	o := job(Job{Create: true, Produce: &Produce{Producers: 2, Record: 1000, Run: 10, Bytes: 3_000_000, Options: ProducerOptions{Acks: -1}}})
	require.Equal(t, Total{3000, 3_000_000}, o.Produced)
	o = job(Job{Consume: &Consume{FanOut: 2, Consumers: 2, Options: ConsumerOptions{FromStart: true}, Records: 3000}})
	require.Equal(t, Total{6000, 6_000_000}, o.Consumed)
	o = job(Job{Produce: &Produce{Producers: 2, Record: 100, Rate: 500, Options: ProducerOptions{Acks: 1}}, Consume: &Consume{FanOut: 1, Consumers: 1}, Run: time.Second})
	_, n := quantiles(t, o.EndToEnd)
	require.EqualValues(t, 500, n, "from the end, and everything of the window")
	require.Positive(t, o.CPU)
	o = job(Job{Produce: &Produce{Producers: 3, Record: 100, OneInFlight: true, Options: ProducerOptions{Acks: -1}}, Run: 500 * time.Millisecond})
	_, n = quantiles(t, o.Ack)
	require.InDelta(t, o.Produced.Records, n, 3, "each record's time is taken")
	o = job(Job{Produce: &Produce{Producers: 2, Record: 100, Premade: true, Options: ProducerOptions{Acks: -1, BatchBytes: 2000}}, Run: 500 * time.Millisecond})
	require.Positive(t, o.Produced.Records)
	require.Equal(t, 100*o.Produced.Records, o.Produced.Bytes)
	topic = Topic{Name: "wide", Partitions: mostCreated + 2}
	job(Job{Create: true})
	o = job(Job{Produce: &Produce{Producers: 1, Record: 8, Bytes: int64(8 * topic.Partitions), Options: ProducerOptions{Acks: -1}}})
	require.EqualValues(t, topic.Partitions, o.Produced.Records, "one to each partition, also to the last")
}
