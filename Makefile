# One profile for the product, its tests and the harness: what is tested is what ships.
CARGO ?= cargo
NAME ?=

.DEFAULT_GOAL := help
.PHONY: help lint test unit real scenarios scenario demo demo-up demo-down demo-20 bench generate

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

lint: ## Formatting and lints, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

test: unit real scenarios ## Everything: unit, property and model tests, then the real stack

unit: ## Unit, property and model tests; no server is contacted
	$(CARGO) test --release --workspace --exclude sluice-tests
	$(CARGO) test --release -p sluice-tests --lib --bins
	$(CARGO) test --release -p sluice-tests --test crate_edges --test docs

# Tests of the harness itself: it builds and starts real components, and leaves nothing behind.
real: build
	$(CARGO) test --release -p sluice-tests --test stack --test crds --test cleanup --test missing --test extension -- --test-threads 1

scenarios: build ## Every scenario on the real stack
	$(CARGO) test --release -p sluice-tests --test scenarios

scenario: build ## One scenario by NAME=…, its logs kept
	KEEP=1 $(CARGO) test --release -p sluice-tests --test scenarios -- $(NAME)

demo: build ## One upgrade that waits for its packages, told as it happens
	$(CARGO) run --release -q -p sluice-tests --bin demo

demo-up: build ## Leave the demo's stack running and print how to look at it
	$(CARGO) run --release -q -p sluice-tests --bin demo -- up

demo-down: ## Remove what demo-up left
	$(CARGO) run --release -q -p sluice-tests --bin demo -- down

demo-20: build ## Twenty upgrades in a row; fails unless order and pace were kept
	$(CARGO) run --release -q -p sluice-tests --bin demo -- repeat --times 20

bench: ## Criterion benches of the hook path
	$(CARGO) bench -p sluice-benches

generate: ## Write the CRD YAML anew from the Rust types
	$(CARGO) run --release -q -p sluice-crds --example generate

.PHONY: build
build:
	$(CARGO) build --release -p sluice
