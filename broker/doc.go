// Package broker is the meaning of each Kafka API on a tierbroker node: it decodes a request, asks the partitions of
// this broker and the cluster's state, and gives Kafka's answer. It is the only place where errors of the lower floors
// become Kafka error codes (errors.go), and the only place that knows what a version of an API changes in behaviour.
//
// # Layout
//
// One file per API. apis.go holds one literal table of all of them; ApiVersions is computed from that table, so what
// is advertised is what is served. Produce and Fetch use package kafka's scatter codecs; every other API goes through
// kmsg.
//
// # Two stages
//
// Package kafka calls Handle in the read goroutine of a connection and Pending.Wait in its write goroutine, both in
// request order.
//
//   - Produce appends in Handle, so that the order of a connection's batches is the order of its requests, also when
//     many are in flight. Wait only waits for durability.
//   - Every other API decodes in Handle and works in Wait: it sees the effects of what the connection asked before,
//     because what came before has been answered.
//
// # Invariants
//
//  1. Produce answers without an error only what partition.Ack reported as written (acks=1) or durable (acks=-1).
//     A timeout is answered with REQUEST_TIMED_OUT, never with success.
//  2. A fetch response passes max_bytes only by its very first batch, and a partition passes its own limit only if
//     its first batch is that batch. An oversized batch never blocks other partitions.
//  3. Every partition.Batches that was read is released exactly once: with the response, or when the read is given up.
//  4. What a request may cost is bounded by its bytes: counts are checked against the body before they are allocated,
//     bodies of all APIs but Produce are capped, and all bodies that kmsg decodes at one time share one budget.
//  5. No call without a deadline: client timeouts are capped, work for the bucket runs on bounded workers under the
//     broker's own deadline.
//
// # Fetch
//
// A fetch examines the partitions that may have something new. Hot ones are read in place, cold ones on the broker's
// cold workers, in parallel, each with its share of max_bytes granted beforehand, at most half of it when there is hot
// data too. A fetch that has min_bytes waits
// only moments for cold reads under way; one that has nothing waits for them as long as for anything else. A read
// that outlives its fetch goes on, so that the client's next fetch finds it in the cache.
//
// A session (KIP-227) owns one partition.Waiter for its whole life. Partitions that are idle are in no list: a fetch
// costs O(partitions that changed), however many the session has. Sessions are capped; when all are in use a client is
// served without one, which is what Kafka does.
//
// # Concurrency
//
// Broker is safe for concurrent use. It starts its cold workers in New and stops them in Close, and starts no other
// goroutine that outlives a call, topics being auto-created excepted: those calls are counted, bounded and ended by
// Close. No lock is held across I/O.
//
// # Never
//
// It never re-encodes a batch, never touches a file or the bucket itself, and keeps no state that a restart would miss.
package broker
