// Package admin serves HTTP to operators: metrics, health, a JSON API and a
// console page.
//
// # Routes
//
//	GET  /healthz                      200 while the process answers
//	GET  /readyz                       200 or 503, with reasons as JSON
//	GET  /metrics                      Prometheus text format
//	GET  /api/v1/cluster               identity, controller, health, bucket traffic
//	GET  /api/v1/cluster/status        whether all is well with the cluster, and if not what to do
//	GET  /api/v1/brokers               brokers that live, own partitions, or are drained or removed
//	GET  /api/v1/brokers/{broker}      one broker with its topics and moves
//	POST /api/v1/brokers/{broker}/drain    no new partitions, and those it has are moved away
//	POST /api/v1/brokers/{broker}/undrain  takes drain and remove back
//	POST /api/v1/brokers/{broker}/remove   drains it for good; its registration is refused afterwards
//	GET  /api/v1/assignments           partitions of the cluster (?topic=&broker=&state=&problem=&moving=&after=&limit=)
//	GET  /api/v1/assignments/{topic}/{partition}/loss  what a forced move would lose
//	GET  /api/v1/moves                 moves under way and waiting
//	POST /api/v1/moves                 asks for moves
//	POST /api/v1/moves/cancel          takes wishes for moves back
//	GET  /api/v1/rebalance             settings, loads of brokers, moves of a rebalance
//	GET  /api/v1/rebalance/plan        what a rebalance would do (?goal=&tolerance=)
//	POST /api/v1/rebalance/apply       asks for the moves of a plan
//	POST /api/v1/rebalance/stop        takes them back
//	POST /api/v1/rebalance/auto        switches the controller's own rebalance
//	GET  /api/v1/topics                topics with hot and cold bytes (?here=true)
//	GET  /api/v1/topics/{topic}        one topic with settings and partitions (?here=true)
//	POST /api/v1/topics/{topic}/roll   brings everything into the bucket now
//	POST /api/v1/topics/{topic}/evict  drops local copies that the bucket covers
//	GET  /api/v1/partitions            partitions of this broker (?topic=&after=&limit=)
//	GET  /api/v1/segments              files of the commit log
//	GET  /api/v1/config                settings of this process
//	GET  /                             the console
//	GET  /debug/pprof/                 Go's profiles, when enabled
//
// Every node answers for the cluster: it has an image of it, and writes wishes to
// etcd itself. Each node is asked for its own health, within two seconds, and
// each broker for its partitions of topics; roll and evict are passed on to the
// brokers that own the partitions. With here=true a node tells and does only what
// concerns its own partitions. Brokers that don't answer are named.
//
// Errors are JSON objects {"error": "..."} with a fitting status. Names in JSON
// are snake_case; times are milliseconds since 1970, sizes are bytes.
//
// # Invariants
//
//  1. Nothing here changes data, except that a forced move gives up what only a dead
//     broker's disk has: roll and evict only move the line between hot and cold,
//     and all that concerns brokers and moves are wishes that the controller acts on.
//  2. A page of another site can't use a visitor's browser to change anything:
//     POST needs Content-Type application/json, is refused when the browser says
//     that it comes from elsewhere, and, on a loopback address, when the Host
//     header is a foreign name (DNS rebinding).
//  3. Every request has limits: 64 KiB of headers, 64 KiB of body, 10 s to send
//     both, and 256 connections at one time. Actions run in bounded parallelism.
//  4. The console loads nothing from anywhere else, and its policy header forbids it.
//
// # Metrics
//
// [Metrics] owns a registry of its own, so that a process (or a test) may hold
// several. Counters are fed by hooks that the lower floors call; gauges of
// partitions, commit log and cache are read when Prometheus asks. Labels are
// bounded: API names, bucket classes, kinds and verbs, and topics that exist
// (series of deleted topics are dropped). Partitions are never a label.
package admin
