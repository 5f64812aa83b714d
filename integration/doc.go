// Package integration holds black-box tests: the built programs, real Kafka
// clients and real S3 servers as processes on 127.0.0.1. It also holds the
// house rules (house_test.go): which package may import which.
//
// The tests look for helper programs (versitygw, minio) on PATH, where the
// Makefile puts .tools/bin first, and for the built programs in bin/.
package integration
