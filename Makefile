# One build for everything: the same profile, and the same features of every dependency because all targets of the whole
# workspace are built together. `cargo build -p` of a single crate would resolve other features and build them again.
CARGO ?= cargo
NAME ?=
KIND ?=
TIMES ?=
RUNS ?=
SEED ?=
FIRST ?= 0
SIZES ?= 100,1000
BUILT := $(or $(CARGO_TARGET_DIR),target)/release

# Seeds of the soak in CI, whose first runs disturb in fourteen of the ways that there are.
SOAK_SEEDS := 10 27 30

# Tests of the product on real components: modules of tests/tests/real, and a target. The longest is first.
REAL := configurations leader install install_gates status gate_definitions gate_admission override_admission example_gates crds examples extension install_wrong policies standby ranges
# How many of them run at once. Two cores are busy with three; with all of them leaders lose their leases.
REAL_AT_ONCE := 3
# Targets of tests that no component is started for.
TESTS := $(basename $(notdir $(wildcard */tests/*.rs extension/*/tests/*.rs))) \
         $(notdir $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs extension/*/tests/*/main.rs)))
PURE := $(sort $(filter-out harness real configurations walls scenarios,$(TESTS)))

# Directories of the members of the workspace.
CRATES := $(patsubst %/Cargo.toml,%,$(wildcard */Cargo.toml extension/*/Cargo.toml))

.DEFAULT_GOAL := help
.PHONY: help build lint doc each-crate test unit shape model fuzz harness real walls all-walls walls-one scenarios each-time scenario short-soak soak soak-gates nightly say-seeds first-run demo cold-demo capture demo-up demo-down demo-20 demo-gates bench bench-hooks bench-hooks-busy plot-hooks compare plot-compare bench-fleet plot-fleet generate say-cost

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# Benches are left out: lints read them, and `make bench` builds them.
build: ## Build the product, its tests and the harness
	$(CARGO) build --release --workspace --lib --bins --tests --examples

lint: ## Formatting and lints, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

doc: ## The documentation of all crates, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps

# One invocation for several crates would give each of them the features that the others ask for.
each-crate: ## Each crate checked alone, with no more features than it asks for itself
	@set -e; for crate in $(CRATES); do \
	  echo "$$crate"; \
	  $(CARGO) check --release --manifest-path $$crate/Cargo.toml; \
	done

test: unit harness real each-time ## Unit and property tests, walks, then the real stack, with the scenarios that run each time

unit: build ## Unit and property tests, and walks; no cluster is needed
	$(CARGO) test --release --workspace --lib --bin pause-flow $(addprefix --test ,$(PURE))

shape: ## How much of the product reads, watches, writes and reports, and how much is without I/O
	$(CARGO) test --release --workspace --test sources shape -- --nocapture

harness: build ## Tests of the harness itself: real components come up, and nothing stays behind
	$(CARGO) test --release --workspace --test harness -- --test-threads 1

real: build ## Tests of the product on real components, without whole scenarios
	$(MAKE) --no-print-directory --jobs $(REAL_AT_ONCE) --output-sync=target $(addprefix real-,$(REAL))

real-configurations:
	$(CARGO) test --release --workspace --test configurations -- --test-threads 1

$(addprefix real-,$(filter-out configurations,$(REAL))): real-%:
	$(CARGO) test --release --workspace --test real $*:: -- --test-threads 4

model: build ## WALKS random walks of reconciles, and searches of orders of events of STATES states each, all by SEED
	SEED=$(or $(SEED),7) WALKS=$(or $(WALKS),2000) STATES=$(or $(STATES),20000) $(CARGO) test --release --workspace --test walks --test gate_walks -- --nocapture --test-threads 2

fuzz: build ## Random expressions of random objects for FUZZ_SECONDS, by SEED
	SEED=$(or $(SEED),7) FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test --release --workspace --test expressions -- --nocapture

walls: build ## A hundred Clusters, some of them on a workload API server that misbehaves, in the six ways that found most
	$(CARGO) test --release --workspace --test walls -- --nocapture

all-walls: build ## The same in every way
	WALLS=all $(CARGO) test --release --workspace --test walls -- --nocapture

walls-one: build ## Those of `walls` with --cluster-concurrency 1
	WALLS_CONCURRENCY=1 $(CARGO) test --release --workspace --test walls -- --nocapture

scenarios: build ## Every scenario on the real stack
	$(CARGO) test --release --workspace --test scenarios

each-time: build ## The scenarios that CI runs for each submission
	$(CARGO) test --release --workspace --test scenarios -- --each-time

scenario: build ## One scenario by NAME=…, its logs kept
	KEEP=1 $(CARGO) test --release --workspace --test scenarios -- $(NAME)

short-soak: build ## The soak that CI runs: one upgrade of each of three seeds
	$(BUILT)/soak --runs 1 $(addprefix --seed ,$(SOAK_SEEDS))

soak: build ## RUNS random upgrades with random disturbances; SEED and FIRST make them again
	$(BUILT)/soak --runs $(or $(RUNS),10) --first $(FIRST) $(if $(SEED),--seed $(SEED))

soak-gates: build ## RUNS upgrades that a gate holds, each with one disturbance of CAAPH, Flux or Sluice; SEED and FIRST make them again
	$(BUILT)/soak --gates --runs $(or $(RUNS),20) --first $(FIRST) $(if $(SEED),--seed $(SEED))

# Other seeds in each run. `make nightly SEED=… PROPTEST_RNG_SEED=…` makes a run again.
nightly: export SEED := $(or $(SEED),$(shell date +%s))
nightly: export PROPTEST_RNG_SEED := $(or $(PROPTEST_RNG_SEED),$(shell date +%s))
nightly: say-seeds unit model fuzz harness real scenarios all-walls walls-one ## Everything with new seeds, for some hours
	$(MAKE) --no-print-directory soak RUNS=60
	$(MAKE) --no-print-directory soak-gates RUNS=20
	$(MAKE) --no-print-directory demo-20
	$(MAKE) --no-print-directory demo KIND=same-kubernetes TIMES=10
	$(MAKE) --no-print-directory demo-gates TIMES=10

say-seeds:
	@echo "SEED=$(SEED) PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED)"

say-cost:
	@test -x $(BUILT)/compare || echo "Tests and benchmark drivers are compiled as well, which takes longer." "$$(tests/first-run.sh cost)"

first-run:
	@tests/first-run.sh

cold-demo: ## The demo with nothing built and nothing downloaded, timed in target/demo/cold.json
	@tests/cold-demo.sh

demo: first-run ## One upgrade that waits for its packages, shown as it happens; KIND=same-kubernetes: TIMES releases of one Kubernetes version
	$(BUILT)/demo $(if $(KIND),$(KIND) --times $(or $(TIMES),1))

capture: build ## Run the demo on a pseudo-terminal and write docs/img/demo.svg
	$(BUILT)/demo capture

demo-up: first-run ## Leave the demo's stack running and print the commands to inspect it
	$(BUILT)/demo up

demo-down: first-run ## Remove what demo-up left
	$(BUILT)/demo down

demo-20: first-run ## Twenty upgrades in a row; fails unless order and pace of all releases were kept
	$(BUILT)/demo repeat --times 20

demo-gates: first-run ## TIMES upgrades without packages that wait for a chart of CAAPH, in target/demo/gates.json
	$(BUILT)/demo gates --times $(or $(TIMES),1)

bench: ## Criterion benches of the hook path, of resolutions, of available updates and of plans of upgrades
	$(CARGO) bench --workspace --bench hook_path --bench resolve --bench offers --bench upgrade_plan

bench-hooks: say-cost build ## Hooks under load beside an extension in Go and a bare echo, ratios in target/bench/hooks.json, six minutes
	$(BUILT)/bench-hooks
	$(BUILT)/bench-hooks --busy

bench-hooks-busy: say-cost build ## Only its last step: the same while 200 generated clusters are upgraded
	$(BUILT)/bench-hooks --busy

plot-hooks: build ## Draw docs/performance/hooks-*.svg, and the table of docs/performance.md, from that file
	$(BUILT)/sluice-bench draw --figures $(BUILT)/../bench/hooks.json

compare: say-cost build ## Upgrades beside those of the pause flow that Sluice replaces: two tables, and target/bench/compare.json, 16 minutes
	$(BUILT)/compare

plot-compare: build ## Draw docs/performance/compare.svg, and both tables of docs/performance.md, from that file
	$(BUILT)/compare --plot

bench-fleet: say-cost build ## SIZES of generated clusters, 2000 at most, on a real API server: memory, requests and times, in target/bench/fleet.json
	$(BUILT)/fleet --sizes $(SIZES)

plot-fleet: build ## Draw docs/performance/*.svg, and the table of docs/performance.md, from that file
	$(BUILT)/fleet --plot

generate: build ## Write the CRD YAML from the Rust types, the copies of the chart, and the tables of reasons to hold and of checks
	$(BUILT)/examples/generate
	$(BUILT)/examples/failure_modes
