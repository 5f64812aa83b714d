// Command member is one member of a consumer group, by franz-go, sarama or kafka-go, as the
// group cases of the client suite run them: ../../groups_member.go says what a member is told and
// what it prints. It leaves the group in order when its standard input ends.
//
// Usage: go run ./member CLIENT
package main
