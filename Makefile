# SPDX-License-Identifier: Apache-2.0

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null)
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT   ?= golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
SEEDS       ?= 500
HA_SEEDS    ?= 300
SOAK_SEEDS  ?= 20000
FUZZTIME    ?= 30s
ROUNDS      ?= 3
BENCH_DIR   ?= bin/bench
BENCH       ?= .
COUNT       ?= 6

# Tests that have a long form.
SOAK_TESTS = ^Test(NoLostWakeup|ManyStrangers|PartialFramesBudget|PeersThatDoNotRead|HeldPullGetsLoneMessageSoon)$$

# Packages that check more with the invariants tag: late readers of the log, reuse of receive buffers.
INVARIANTS = ./storage/... ./reactor/... ./engine

.DEFAULT_GOAL := help
.PHONY: build run demo-ha test test-race fuzz sim soak interop bench bench-peer bench-micro lint fmt cover clean help

build: ## bin/loopmq, static
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/loopmq ./cmd/loopmq

run: build ## a name server and a broker on 127.0.0.1, store in ./data
	bin/loopmq run

demo-ha: build ## a pair on loopback under load, its master killed, the loss counted
	go run ./bench/demoha -loopmq bin/loopmq

test: ## unit, property, simulation and end-to-end tests; Go only
	go vet ./...
	go test -timeout 10m ./...
	go test -timeout 10m -tags invariants $(INVARIANTS)

test-race: ## the tests under the race detector; needs a C compiler
	@command -v $${CC:-gcc} >/dev/null || { echo 'make test-race: the race detector needs a C compiler (gcc, or CC=…)' >&2; exit 1; }
	CGO_ENABLED=1 go test -race -timeout 20m ./...

fuzz: ## every fuzz target for FUZZTIME (30s)
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "== $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

sim: ## crashes by seed: SEEDS (500) of a store, a tenth of them of a whole node; HA_SEEDS (300) of masters and slaves
	go test ./storage -run '^TestCrash$$' -count=1 -timeout 0 -seeds=$(SEEDS)
	go test ./engine -run '^TestAcknowledgedSurvivesACrash$$' -count=1 -timeout 0 -seeds=$$(( ($(SEEDS) + 9) / 10 ))
	go test ./ha -run '^TestSimulation' -count=1 -timeout 0 -seeds=$(HA_SEEDS)

soak: ## the long forms: of some tests, SOAK_SEEDS (20000) crashes, and every fuzz target for ten minutes
	go test ./storage ./reactor ./engine -p 1 -run '$(SOAK_TESTS)' -count=1 -timeout 0 -v -soak
	$(MAKE) sim SEEDS=$(SOAK_SEEDS) HA_SEEDS=$(SOAK_SEEDS)
	$(MAKE) fuzz FUZZTIME=10m

interop: ## against the real RocketMQ 4.9.7 and 5.3.3 and the Go client; needs a JDK, Maven and the network
	@command -v javac >/dev/null && command -v mvn >/dev/null || { echo 'make interop: needs a JDK (javac) and Maven (mvn)' >&2; exit 1; }
	cd engine/interop/goclient && go vet ./...
	go vet -tags interop ./engine/interop
	go test -tags interop -count=1 -parallel 3 -timeout 35m -v ./engine/interop

# Where a measurement is recorded: results by day, the page beside the binary.
record = --json bench/results/$(1)-$(shell date -u +%F).json --markdown bench/results/$(1)-$(shell date -u +%F).md --html bin/$(1).html

bench: build ## five minutes of measurements, recorded in bench/results; needs 15 GB below BENCH_DIR (bin/bench)
	bin/loopmq bench compare --servers loopmq --set alone --rounds 2 --warmup 1s --duration 6s --dir $(BENCH_DIR) $(call record,alone)

bench-peer: build ## the same work for loopmq and the Java brokers 4.9.7 and 5.3.3, ROUNDS (3) turns each, an hour; needs a JDK and Maven
	bin/loopmq bench compare --servers loopmq,java:4.9.7,java:5.3.3 --again --rounds $(ROUNDS) --duration 6s --settle 15s --dir $(BENCH_DIR) $(call record,peers)

bench-micro: ## micro-benchmarks that match BENCH (all), COUNT (6) times, in bin/micro.txt; beside an earlier file with BASE=
	@mkdir -p bin
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 ./... > bin/micro.txt || { cat bin/micro.txt; exit 1; }
	go run $(BENCHSTAT) $(BASE) bin/micro.txt

lint: ## gofmt, go mod tidy, vet, staticcheck
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted:" $$files >&2; exit 1; }
	go mod tidy -diff
	cd engine/interop/goclient && go mod tidy -diff
	go vet ./...
	go vet -tags invariants ./...
	go run $(STATICCHECK) ./...
	go run $(STATICCHECK) -tags interop ./engine/interop
	cd engine/interop/goclient && go vet ./...

fmt: ## format the code
	gofmt -w .

cover: ## coverage of the tests, by function and in bin/cover.html
	@mkdir -p bin
	go test -coverpkg ./... -coverprofile bin/cover.out ./...
	go tool cover -func bin/cover.out | tail -1
	go tool cover -html bin/cover.out -o bin/cover.html

clean: ## what the other targets made
	rm -rf bin
	go clean -testcache

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
