// Package admin serves HTTP to operators: metrics, health, a JSON API and a
// console page.
//
// # Routes
//
//	GET  /healthz                      200 while the process answers
//	GET  /readyz                       200 or 503, with reasons as JSON
//	GET  /metrics                      Prometheus text format
//	GET  /api/v1/cluster               identity, controller, health, bucket traffic
//	GET  /api/v1/brokers               living brokers
//	GET  /api/v1/topics                topics with hot and cold bytes
//	GET  /api/v1/topics/{topic}        one topic with settings and partitions
//	POST /api/v1/topics/{topic}/roll   brings everything into the bucket now
//	POST /api/v1/topics/{topic}/evict  drops local copies that the bucket covers
//	GET  /api/v1/partitions            partitions of this broker (?topic=&after=&limit=)
//	GET  /api/v1/segments              files of the commit log
//	GET  /api/v1/config                settings of this process
//	GET  /                             the console
//	GET  /debug/pprof/                 Go's profiles, when enabled
//
// Errors are JSON objects {"error": "..."} with a fitting status. Names in JSON
// are snake_case; times are milliseconds since 1970, sizes are bytes.
//
// # Invariants
//
//  1. Nothing here changes data: roll and evict only move the line between hot
//     and cold.
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
