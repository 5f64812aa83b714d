package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// order is what the suite told this member.
type order struct {
	bootstrap, topic, group, id, instance, strategy, protocol string
	session                                                   time.Duration
}

// batchRecords is how many records a member processes before it commits.
const batchRecords = 200

func main() {
	run := map[string]func(context.Context, order) error{"franz-go": runFranz, "sarama": runSarama, "kafka-go": runKafkaGo}
	if len(os.Args) != 2 || run[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go run ./member franz-go|sarama|kafka-go")
		os.Exit(2)
	}
	ms, err := strconv.Atoi(os.Getenv("MEMBER_SESSION_MS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "MEMBER_SESSION_MS:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is what matters
		cancel()
	}()
	err = run[os.Args[1]](ctx, order{
		bootstrap: os.Getenv("TIERBROKER_BOOTSTRAP"), topic: os.Getenv("MEMBER_TOPIC"), group: os.Getenv("MEMBER_GROUP"),
		id: os.Getenv("MEMBER_ID"), instance: os.Getenv("MEMBER_INSTANCE"), strategy: os.Getenv("MEMBER_STRATEGY"),
		protocol: os.Getenv("MEMBER_PROTOCOL"), session: time.Duration(ms) * time.Millisecond,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// event is one line of output.
type event struct {
	What       string             `json:"e"`
	Time       int64              `json:"t"` // microseconds since 1970
	Partitions []int32            `json:"p,omitempty"`
	Records    map[int32][3]int64 `json:"r,omitempty"` // first and last offset, number
	Text       string             `json:"m,omitempty"`
}

var printing sync.Mutex

func emit(e event) {
	printing.Lock()
	defer printing.Unlock()
	e.Time = time.Now().UnixMicro()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil { // nobody listens any more
		os.Exit(3)
	}
}

func assigned(ps []int32) { emit(event{What: "assigned", Partitions: ps}) }
func revoked(ps []int32)  { emit(event{What: "revoked", Partitions: ps}) }
func lost(ps []int32)     { emit(event{What: "lost", Partitions: ps}) }

// note tells of something that need not be wrong, such as a commit that a rebalance refused.
func note(format string, args ...any) {
	emit(event{What: "note", Text: fmt.Sprintf(format, args...)})
}

func processed(p int32, first, last int64, n int) {
	emit(event{What: "records", Records: map[int32][3]int64{p: {first, last, int64(n)}}})
}
