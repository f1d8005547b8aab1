# One build for everything: the same profile, and the same features of every dependency because all targets of the whole
# workspace are built together. `cargo build -p` of a single crate would resolve other features and build them again.
CARGO ?= cargo
NAME ?=
RUNS ?= 10
SEED ?=
FIRST ?= 0
HALF ?= 0
SIZES ?= 100,1000,10000
BUILT := $(or $(CARGO_TARGET_DIR),target)/release

# Tests that start real components, and all others.
REAL := stack crds cleanup missing extension configurations leader standby
# Those of them that mostly wait, and run beside one another.
BESIDE := configurations leader
TESTS := $(basename $(notdir $(wildcard */tests/*.rs extension/*/tests/*.rs))) \
         $(notdir $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs extension/*/tests/*/main.rs)))
PURE := $(sort $(filter-out $(REAL) walls scenarios,$(TESTS)))

.DEFAULT_GOAL := help
.PHONY: help build lint test unit shape model real walls scenarios short-scenarios long-scenarios scenario short-soak soak demo demo-up demo-down demo-20 bench bench-fleet plot-fleet generate say-cost

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# Benches are left out: lints read them, and `make bench` builds them.
build: ## Build the product, its tests and the harness
	$(CARGO) build --release --workspace --lib --bins --tests --examples

lint: ## Formatting and lints, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

test: unit real short-scenarios ## Unit, property and model tests, then the real stack, without the scenarios that take long

unit: build ## Unit, property and model tests; no cluster is needed
	$(CARGO) test --release --workspace --lib --bins $(addprefix --test ,$(PURE))

shape: ## How much of the product reads, watches, writes and reports, and how much is without I/O
	$(CARGO) test --release --workspace --test shape -- --nocapture

real: build ## Tests of the harness: real components come up, and nothing stays behind
	$(CARGO) test --release --workspace $(addprefix --test ,$(filter-out $(BESIDE),$(REAL))) -- --test-threads 1
	$(MAKE) --no-print-directory --jobs --output-sync=target $(addprefix real-,$(BESIDE))

$(addprefix real-,$(BESIDE)): real-%:
	$(CARGO) test --release --workspace --test $* -- --test-threads 1

model: build ## WALKS random walks of passes by SEED, and orders of events of one hop, two minutes at most for each of 19 searches
	SEED=$(or $(SEED),7) WALKS=$(or $(WALKS),2000) $(CARGO) test --release --workspace --test walks -- --include-ignored --nocapture --test-threads 1

walls: build ## A hundred Clusters, some of them on a workload API server that misbehaves
	$(CARGO) test --release --workspace --test walls -- --nocapture

scenarios: build ## Every scenario on the real stack
	$(CARGO) test --release --workspace --test scenarios

short-scenarios: build ## The scenarios that `make test` runs
	$(CARGO) test --release --workspace --test scenarios -- --short

long-scenarios: build ## Half of the others: HALF=0 or HALF=1
	$(CARGO) test --release --workspace --test scenarios -- --long-half $(HALF)

scenario: build ## One scenario by NAME=…, its logs kept
	KEEP=1 $(CARGO) test --release --workspace --test scenarios -- $(NAME)

short-soak: build ## The soak that CI runs: ten upgrades of a fixed seed
	$(BUILT)/soak --runs 10 --seed 3

soak: build ## RUNS random upgrades with random disturbances; SEED and FIRST make them again
	$(BUILT)/soak --runs $(RUNS) --first $(FIRST) $(if $(SEED),--seed $(SEED))

say-cost:
	@test -x $(BUILT)/demo || echo "Nothing is built yet. On two cores this takes about 9 minutes for Sluice and its harness," \
	  "then about 10 for Cluster API, API servers and kapp-controller, unless they are kept from an earlier run."

demo: say-cost build ## One upgrade that waits for its packages, shown as it happens
	$(BUILT)/demo

demo-up: say-cost build ## Leave the demo's stack running and print how to look at it
	$(BUILT)/demo up

demo-down: build ## Remove what demo-up left
	$(BUILT)/demo down

demo-20: say-cost build ## Twenty upgrades in a row; fails unless order and pace were kept
	$(BUILT)/demo repeat --times 20

bench: ## Criterion benches of the hook path
	$(CARGO) bench --workspace --bench hook_path

bench-fleet: say-cost build ## SIZES of generated clusters on a real API server: memory, requests and times, in target/bench/fleet.json
	$(BUILT)/fleet --sizes $(SIZES)

plot-fleet: build ## Draw docs/performance/*.svg, and the table of docs/performance.md, from that file
	$(BUILT)/fleet --plot

generate: build ## Write the CRD YAML from the Rust types, and the tables of reasons to hold
	$(BUILT)/examples/generate
	$(BUILT)/examples/failure_modes
