package report

// Names of metrics that aims, tables and plots look for. A scenario that measures one of these uses the name; others are shown
// under whatever they are called.
const (
	Rate        = "MB/s"            // payload, 10^6 bytes
	BrokerCPU   = "broker CPU s/GB" // processor seconds of the broker's processes, all threads, by 10^9 bytes of payload
	P50         = "p50 ms"
	P99         = "p99 ms"
	PeakMemory  = "peak MiB"   // highest resident memory, files that are mapped included
	IdleMemory  = "idle MiB"   // resident memory after a while without clients
	Recovered   = "ready s"    // from exec to the last record fetched and a new one acknowledged
	PutsPerRoll = "PUT/64 MiB" // all requests that write, by 64 MiB moved to the bucket
	GetsPerRead = "GET/4 MiB"  // all requests that read, by 4 MiB replayed
)

// Bare is who reads or writes with no broker in between.
const Bare = "bare"

// Scenarios that aims look for.
const (
	ScenarioProduce  = "produce"
	ScenarioTail     = "tail"
	ScenarioLatency  = "latency"
	ScenarioCold     = "cold"
	ScenarioBeside   = "beside"
	ScenarioRecovery = "recovery"
	ScenarioMemory   = "memory"
	ScenarioBucket   = "bucket"
	ScenarioCluster  = "cluster"
)
