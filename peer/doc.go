// Package peer carries calls between nodes of one cluster: load reports from brokers to the leading controller, and
// whatever else one node asks another (the caller names the calls). It is HTTP/1.1 with JSON bodies on a listener of its own.
//
// # A call
//
//	POST /peer/v1/<name>
//	X-Tierbroker-Cluster: <cluster id>
//	X-Tierbroker-Time:    <ms since 1970>
//	X-Tierbroker-Auth:    <hex of HMAC-SHA256, when the cluster has a secret>
//
//	<JSON of the argument>
//
// 200 brings the JSON of the result. Other answers are text, cut at 4 KiB: 400 for a body that can't be decoded, 401 for a
// caller without the secret, 404 for an unknown name, 409 for a node that can't do it (not the leader), 413 for a body that
// is too large, 421 for a node of another cluster, 503 for too many calls at one time, 500 for a fault.
//
// # What is protected
//
// The listener should be reachable from the cluster's nodes only. Beyond that there are two means, and both may be used:
//
//   - A secret that all nodes share. A caller proves that it knows it by an HMAC over cluster id, name, time and body; the
//     secret itself never travels. Strangers can't call, and a call that was overheard can be repeated for five minutes at
//     most, which changes nothing (calls are idempotent). What is said is not hidden, and answers are not proven.
//   - TLS with certificates of the cluster's own authority on both sides: hides and proves everything both ways.
//
// Without either, whoever reaches the port can call.
//
// # Invariants
//
//  1. Every call has a deadline, on both sides; every body has a limit that is enforced while it is read.
//  2. At most Options.MaxCalls calls are served at one time; more are refused at once, not queued.
//  3. Nothing that a peer sends can panic the process or make it allocate more than a small multiple of the body's limit.
//  4. A call that fails may have been carried out. So calls must be idempotent.
//
// # Concurrency
//
// Server and Client may be used by many goroutines. Serve starts one goroutine that Shutdown ends; a client keeps idle
// connections until Close.
//
// # Never
//
// It knows no etcd and no partitions, keeps nothing on disk, and never repeats a call by itself.
package peer
