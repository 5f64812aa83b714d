// Package config turns flags, environment variables and one YAML file into a
// [Config], or into a list of everything that is wrong with them.
//
// # Owner
//
// The table [Settings] is the only place where a setting is declared: its name,
// kind, unit, bounds, default, the reason for that default and its text. The
// flags of the daemon, docs/configuration.md and the output of
// "tierbroker check-config" are all generated from it. Only cmd reads this
// package; everything below takes its own small Options.
//
// # Names
//
// A setting has one name, in lower case with hyphens. The file uses it as a
// key, the command line as a flag (for the settings marked Flag), the
// environment as TIERBROKER_ plus the name in upper case with underscores:
//
//	cache-bytes: 1GiB          in the file
//	--cache-bytes 1GiB         as a flag, where there is one
//	TIERBROKER_CACHE_BYTES=1GiB
//
// # Invariants
//
//  1. Precedence is flag, environment, file, default.
//  2. All faults are reported together, each with its place (file and line,
//     variable, or flag) and, for an unknown name, the nearest known one. A
//     value that a higher source overrides is checked all the same.
//  3. Unknown variables beginning with TIERBROKER_ are faults, except those
//     that Kubernetes injects for services (…_SERVICE_HOST, …_PORT_9092_TCP)
//     and those of test suites (TIERBROKER_TEST_…).
//  4. There are at most 40 settings. A test counts them.
//  5. A file over 1 MiB is refused, so that a wrong path can't fill memory.
//
// # Values
//
// Sizes take a binary or decimal unit (64MiB, 10MB, 1GiB) or are bytes.
// Durations are Go's with days and weeks added (500ms, 5m, 1h30m, 7d). Lists
// are YAML sequences, or separated by commas. Maps are YAML mappings, or
// "key=value" pairs separated by semicolons.
package config
