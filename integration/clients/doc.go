// Command clients runs real Kafka clients against a broker and says, case by case, what
// works: franz-go, sarama, segmentio/kafka-go, kafkajs, @platformatic/kafka, librdkafka
// (kcat and Python), and the Java client with its command line tools; then consumer groups of
// each (groups.go). README.md beside this file tells what is checked and what is not.
//
// It talks to the broker at TIERBROKER_BOOTSTRAP, or builds cmd/tierbroker and starts one in a
// temporary directory on free ports. Clients reach the broker through a proxy (proxy.go) that
// records which API versions they use and, in mode "old", lowers the versions that the broker
// announces to the oldest ones a Kafka 4 broker accepts.
//
// Each case is one line of output, beginning with ok or FAIL; the last line is
// "N passed, N failed". The exit code is 1 when anything failed.
//
// Usage: go run ./integration/clients [-only kcat,java,groups,reassign]
package main
