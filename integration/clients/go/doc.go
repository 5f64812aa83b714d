// Command go runs the Go part of the client suite: franz-go, sarama and segmentio/kafka-go
// against a broker. It is a module of its own so that the broker's go.mod does not carry
// these clients. See ../README.md for what the suite checks.
//
// Usage: go run . CLIENT, with
//
//	TIERBROKER_BOOTSTRAP  the broker's HOST:PORT
//	TIERBROKER_MODE       old or new: API versions to use
//	TIERBROKER_RUN        prefix of all topic names
//	TIERBROKER_READ       topics written by other clients, to be read as well
//	TIERBROKER_ONLY_READ  when set, do nothing but that
//
// It prints one line "ok CLIENT MODE: CASE" or "FAIL CLIENT MODE: CASE: WHY" for each case.
package main
