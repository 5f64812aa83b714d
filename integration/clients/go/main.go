package main

import (
	"fmt"
	"os"
	"time"
)

// patience is how long a client may take for one step.
const patience = 30 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . franz-go|sarama|kafka-go")
		os.Exit(2)
	}
	bootstrap := os.Getenv("TIERBROKER_BOOTSTRAP")
	s := &suite{name: os.Args[1], mode: os.Getenv("TIERBROKER_MODE"), run: os.Getenv("TIERBROKER_RUN")}
	open := map[string]func(bootstrap, mode string) (client, error){
		"franz-go": openFranz, "sarama": openSarama, "kafka-go": openKafkaGo,
	}[s.name]
	if open == nil || bootstrap == "" || s.run == "" || (s.mode != "old" && s.mode != "new") {
		fmt.Fprintln(os.Stderr, "the client, TIERBROKER_BOOTSTRAP, TIERBROKER_RUN or TIERBROKER_MODE is missing or unknown")
		os.Exit(2)
	}
	var c client
	s.check("connect", func() (err error) {
		c, err = open(bootstrap, s.mode)
		return err
	})
	if s.failed {
		os.Exit(1)
	}
	s.runAll(c)
	c.close()
	if s.failed {
		os.Exit(1)
	}
}

// eventually tries until it works or patience ends; the last error is returned.
func eventually(f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
