# Targets for people and for CI. "make help" lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X github.com/tierbroker/tierbroker/admin.commit=$(COMMIT)
TOOLS   := $(CURDIR)/.tools/bin
export PATH := $(TOOLS):$(PATH)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSITYGW   := github.com/versity/versitygw/cmd/versitygw@v1.8.0
MINIO       := github.com/minio/minio@v0.0.0-20250907161309-07c3a429bfed

# Client tests need other languages' runtimes and have a target of their own.
# The longest first: the others run beside it.
PACKAGES = ./integration $(shell go list ./... | grep -v '/integration$$\|/integration/clients')
# Where goroutines meet; the rest is sequential and only loses time under -race.
RACE     ?= ./admin/... ./broker/... ./cache/... ./cluster/... ./controller/... ./index/... ./kafka/... ./partition/... ./segment/... ./tier/...
FUZZTIME ?= 20s
ARGS     ?=

## run: build and start one broker with everything in ./data (ARGS="--log-level debug" adds flags)
.PHONY: run
run: build
	@exec ./bin/tierbroker run $(ARGS)

## cluster: an S3 server, a controller and three brokers as processes on 127.0.0.1 (ARGS="-brokers 5 -controllers 3 -offset 1000")
.PHONY: cluster
cluster: build $(TOOLS)/versitygw
	@go build -o bin/ ./integration/localcluster && exec bin/localcluster $(ARGS)

## build: both programs into ./bin
.PHONY: build
build:
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

## tools: staticcheck and the S3 test server versitygw into ./.tools/bin (nothing when present)
.PHONY: tools
tools: $(TOOLS)/staticcheck $(TOOLS)/versitygw

$(TOOLS)/staticcheck:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install $(STATICCHECK)

$(TOOLS)/versitygw:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install $(VERSITYGW)

# MinIO is under the AGPL: a separate program that tests talk to over HTTP, never linked.
$(TOOLS)/minio:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install $(MINIO)

# The comparison with other brokers is a module of its own, so that what it needs is nobody's dependency.
COMPARE := bench/compare

## lint: gofmt, go vet and staticcheck, of both modules
.PHONY: lint
lint: $(TOOLS)/staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	$(TOOLS)/staticcheck ./...
	cd $(COMPARE) && go vet ./... && $(TOOLS)/staticcheck ./...

## test: lint, then all tests against versitygw, then the concurrent packages under the race detector
.PHONY: test
test: tools lint test-unit test-race test-compare

## test-unit: all tests but those of other languages' clients
.PHONY: test-unit
test-unit: tools build
	go test -timeout 20m $(PACKAGES)

## test-race: short tests of the concurrent packages under the race detector
.PHONY: test-race
test-race: tools
	go test -race -short -timeout 10m $(RACE)

## test-compare: the tests of the comparison with other brokers, with those that Go alone installs
.PHONY: test-compare
test-compare:
	cd $(COMPARE) && go test -timeout 15m ./...

## test-clients: real Kafka clients (Go, JavaScript, kcat, Python, Java) against a broker (CLIENTS=kcat,java,groups,reassign picks some)
.PHONY: test-clients
test-clients: build
	go run ./integration/clients $(if $(CLIENTS),-only $(CLIENTS))

## test-minio: the tests that talk to S3, with MinIO in place of versitygw
.PHONY: test-minio
test-minio: tools $(TOOLS)/minio build
	TIERBROKER_TEST_S3=minio go test -count=1 -timeout 15m ./tier/... ./integration

## fuzz: every fuzz test for FUZZTIME (20s) each
.PHONY: fuzz
fuzz:
	@go list ./... | while read -r pkg; do \
		for f in $$(go test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$pkg"; \
		done; \
	done

# What a run of the comparison is told: BENCH="-systems kafka,tierbroker-async -scenarios produce" picks some. Data goes to a folder here, since
# a temporary directory may be memory.
BENCH     ?=
BENCH_DIR ?= $(CURDIR)/.cache/bench

## bench: tierbroker beside Kafka, ten to fifteen minutes, into docs/performance/short (BENCH="-systems kafka*" adds flags, BENCH=-h lists them)
.PHONY: bench
bench: tools
	cd $(COMPARE) && go run . -dir $(BENCH_DIR) -out $(CURDIR)/docs/performance/short $(BENCH)

## bench-full: the same with all scenarios, three turns and longer windows, into docs/performance/full; takes hours and about 25 GB of disk (BENCH="-turns 1 -warm 4s -run 5s": 40 minutes)
.PHONY: bench-full
bench-full: tools
	cd $(COMPARE) && go run . -full -dir $(BENCH_DIR) -out $(CURDIR)/docs/performance/full $(BENCH)

# Packages whose own benchmarks belong to the picture: checksums and parsing, appends against pwrite, lookups, codecs, cold ranges.
BENCHED   = ./batch ./segment ./index ./kafka ./tier/bucket/s3
BENCHTIME ?= 200ms

## bench-parts: parts of tierbroker against bare system calls, in a few minutes (BENCHTIME=1s takes longer and is steadier)
.PHONY: bench-parts
bench-parts: tools
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 20m $(BENCHED)
	go test -run '^$$' -bench 'HotFetch|ColdFetch|GroupCommit' -benchtime 1s -timeout 20m ./bench
	go test -run '^$$' -bench 'Start|Partitions' -benchtime 3x -timeout 20m ./bench
	go test -run '^$$' -bench Process -benchtime 1x -timeout 20m ./bench

## docs: write the generated pages again
.PHONY: docs
docs:
	go test ./config -run TestDocumentIsInStep -update

## clean: remove what was built (not ./data, ./data-cluster, ./.tools)
.PHONY: clean
clean:
	rm -rf bin
	go clean -testcache

## help: this list
.PHONY: help
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{ printf "  %-14s %s\n", $$1, substr($$0, length($$1) + 3) }'
