// Package bench measures tierbroker against what its speed can't exceed: bare system calls and a bare S3 client on the same
// machine, in the same run, by turns, with the same bytes. What is reported is the ratio, which survives a busy or a slow
// machine; rates are only shown beside it.
//
//	BenchmarkHotFetch    partition.Read, the Fetch response and its writev, against writev of the same bytes from a mapping
//	BenchmarkColdFetch   partition.Read of what is only in the bucket, against the same ranges by minio-go
//	BenchmarkGroupCommit producers that wait for durability: how many batches share an fdatasync and an index batch
//	BenchmarkStart       a broker process: time until it is ready, memory when idle
//	BenchmarkProcess     a broker process: produce and fetch, with its CPU time, memory and bucket requests per GB
//	BenchmarkPartitions  a broker process: ten partitions against ten thousand, same requests
//	BenchmarkGroupCommits, BenchmarkGroupJoin  a broker process: offset commits; a hundred members until they have their partitions
//	BenchmarkProduceBesideGroup  two broker processes: a producer beside a group that rebalances without pause
//
// Package segment measures appends against pwrite, package index its lookups, package batch checksums and validation; "make
// bench-parts" runs them all. Subpackages: raw is a client that costs next to nothing, process runs a broker and reads from the
// system what it uses, load is a program that drives any broker. docs/performance.md keeps the results. Beside them, compare is
// a module of its own: "make bench" measures tierbroker beside other brokers.
//
// The package stands outside of the floors: it may look into all of them, nothing imports it.
package bench
