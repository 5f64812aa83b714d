package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Special timestamps for client.lookup, as in the protocol.
const (
	latest   = -1
	earliest = -2
)

// client is what the suite asks of a client library.
type client interface {
	create(topic string, partitions int) error
	remove(topic string) error
	// partitions returns a topic's partition count; 0 when there is no such topic.
	partitions(topic string) (int, error)
	// produce writes the records to partition, in several requests.
	produce(topic, codec string, rs []record) error
	// consume reads n records of partition from an offset on, without a group.
	consume(topic string, from int64, n int) ([]record, error)
	// lookup returns the first offset with the timestamp or a later one, -1 when there is none.
	lookup(topic string, time int64) (int64, error)
	close()
}

type suite struct {
	name, mode, run string
	failed          bool
}

// check runs one case and prints its line.
func (s *suite) check(what string, f func() error) {
	if err := f(); err != nil {
		s.failed = true
		fmt.Printf("FAIL %s %s: %s: %s\n", s.name, s.mode, what, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	fmt.Printf("ok %s %s: %s\n", s.name, s.mode, what)
}

func (s *suite) topic(what string) string {
	return fmt.Sprintf("%s-%s-%s-%s", s.run, s.name, s.mode, what)
}

// runAll runs every case with one client.
func (s *suite) runAll(c client) {
	if os.Getenv("TIERBROKER_ONLY_READ") == "" {
		s.roundTrips(c)
		s.check("create and delete a topic", func() error { return createDelete(c, s.topic("deleted")) })
	}
	for _, topic := range strings.Fields(os.Getenv("TIERBROKER_READ")) {
		if s.mode == "old" && strings.HasSuffix(topic, "-zstd") {
			continue
		}
		s.check("read "+strings.TrimPrefix(topic, s.run+"-"), func() error { return read(c, topic, 0) })
	}
}

// roundTrips writes and reads with every codec.
func (s *suite) roundTrips(c client) {
	codecs := []string{"none", "gzip", "snappy", "lz4"}
	if s.mode == "new" {
		codecs = append(codecs, "zstd") // needs Produce 7 and Fetch 10
	}
	for _, codec := range codecs {
		topic := s.topic(codec)
		s.check("create topic for "+codec, func() error {
			if err := c.create(topic, 3); err != nil {
				return err
			}
			return eventually(func() error { // it has a leader
				n, err := c.lookup(topic, latest)
				if err == nil && n != 0 {
					err = fmt.Errorf("it ends at %d", n)
				}
				return err
			})
		})
		s.check("produce "+codec, func() error { return c.produce(topic, codec, dataset()) })
		s.check("consume "+codec, func() error { return read(c, topic, 0) })
		s.check("consume "+codec+" from the middle", func() error { return read(c, topic, records/2+3) })
		s.check("look up by time "+codec, func() error { return lookups(c, topic) })
	}
}

func read(c client, topic string, from int64) error {
	got, err := c.consume(topic, from, records-int(from))
	if err != nil {
		return err
	}
	_, loose := c.(*kafkaGo) // it makes nil of empty keys and values
	return compare(dataset()[from:], got, loose)
}

// lookups asks for the offset at, and around, timestamps of the data, and for the ends.
func lookups(c client, topic string) error {
	for _, q := range []struct{ time, want int64 }{
		{earliest, 0}, {latest, records}, {0, 0}, {firstTime, 0}, {firstTime + 1, 1},
		{firstTime + 123_000, 123}, {firstTime + 122_999, 123}, {firstTime + 123_001, 124},
		{firstTime + (records-1)*1000, records - 1}, {firstTime + records*1000, -1},
	} {
		got, err := c.lookup(topic, q.time)
		if err != nil {
			return fmt.Errorf("time %d: %w", q.time, err)
		}
		if got != q.want {
			return fmt.Errorf("time %d: offset %d, want %d", q.time, got, q.want)
		}
	}
	return nil
}

func createDelete(c client, topic string) error {
	if err := c.create(topic, 5); err != nil {
		return err
	}
	err := eventually(func() error {
		if n, err := c.partitions(topic); err != nil || n != 5 {
			return fmt.Errorf("%d partitions after creation, want 5 (%v)", n, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.create(topic, 5); err == nil {
		return errors.New("a second creation under the same name was not refused")
	}
	if err := c.remove(topic); err != nil {
		return err
	}
	return eventually(func() error {
		if n, err := c.partitions(topic); err != nil || n != 0 {
			return fmt.Errorf("%d partitions after deletion (%v)", n, err)
		}
		return nil
	})
}
