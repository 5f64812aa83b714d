// Command compare measures tierbroker beside what its users would run instead: on one machine, in one run, by turns, with the
// same client code, and writes a report with plots.
//
// It is a Go module of its own, so that NATS, kfake, plots and histograms are nobody's dependency who only wants a broker.
//
//	system    how each broker is installed, started, stopped, killed; one file each
//	load      clients of each protocol behind one seam, closed and open loop, histograms; runs in processes of its own
//	account   what processes and the bucket did, read from the system: CPU, memory, disk, requests by kind
//	scenario  what is measured, one file each: phases of load against systems by turns
//	report    JSON, Markdown and plots
//
// Three rules make a figure one that others would believe. The broker and its load are pinned to the same processors for each
// system (see account). Whoever is compared takes turns with the others in one run, and dirty pages are written back in between.
// An open loop counts a record's time from when it should have been sent, so a broker that stalls pays for what waited.
package main
