# Signalbox, from a fresh clone: `make up` serves it, `make test` checks it. `make help` lists the rest.

export CARGO_TARGET_DIR ?= $(shell tools/target-dir)

CARGO_BUILD := cargo build --release --locked -p signalbox -p signalbox-agent --bin signalbox --bin signalbox-agent

.DEFAULT_GOAL := help
.PHONY: help up build clients console openapi examples test lint fmt demo demo-plant demo-sensors alarms-live bench \
	bench-console bench-extraction bench-log bench-monitoring webhook-libraries plugin-peers scale chaos abuse fuzz bootstrap

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

up: build ## Build and serve Signalbox with its own database and bus, until Ctrl-C
	@exec "$(CARGO_TARGET_DIR)/release/signalbox" up

build: bootstrap ## Build the console, the server and the agent for release
	@tools/console
	$(CARGO_BUILD)
	@cp -f .tools/lib/libpdfium.so "$(CARGO_TARGET_DIR)/release/"

console: bootstrap ## Build the console's pages
	@tools/console

openapi: ## Write the description of the interface and the types for TypeScript anew, after a change of the interface
	cargo run --quiet --locked -p signalbox --bin signalbox -- openapi > console/openapi.json
	@tools/console npm run types

clients: ## Generate the Python client into clients/python; that for TypeScript stands in clients/typescript
	@tools/bootstrap tests
	PYTHONPATH=.tools/clients python3 clients/python/generate.py

examples: bootstrap ## Record examples of requests and answers from the tests, for operations that have none
	@tools/bootstrap tests
	SIGNALBOX_EXAMPLES=1 cargo test --locked --workspace --test it -- routes:: api::
	@$(MAKE) openapi

test: ## Check format, layers, words and lints, and run all tests
	@tools/test

lint: bootstrap ## Check lints, layers and words
	cargo clippy --workspace --all-targets --locked -- -D warnings
	tools/check-layers
	tools/check-circles
	tools/check-words

fmt: ## Format all Rust code
	cargo fmt --all

demo: build ## Move real files through the running system (start it with make up)
	@tools/demo

demo-plant: build ## Bring a small plant to life in the running system (start it with make up), until Ctrl-C
	@tools/demo-plant

demo-sensors: ## Let simulated values flow into the running system (start it with make up), until Ctrl-C
	@tools/demo-sensors

bench: build ## Measure throughput and latency on this machine; BENCH=name for one of them
	@tools/bootstrap tests
	cargo bench --locked -p signalbox --bench signalbox -- $(BENCH)

bench-monitoring: build ## Measure datapoints: in, out, on disk and live; BENCH_PARTS=ingest,single for some of it
	@tools/bootstrap tests
	cargo bench --locked -p signalbox --bench signalbox -- monitoring

bench-extraction: build ## Measure extraction of documents beside its peers; BENCH_PARTS='digital ocr' for some of it
	@tools/bench-extraction $(BENCH_PARTS)

bench-log: build ## Carry, verify and rebuild a log of BENCH_EVENTS (1,000,000); BENCH_PARTS=carry,rebuild for some of it
	BENCH_EVENTS=$(or $(BENCH_EVENTS),1000000) cargo bench --locked -p signalbox --bench signalbox -- log

bench-console: build ## Measure the console in Chromium, BENCH_MINUTES (30) of live values; BENCH_PARTS='redraw scroll heap large sizes'
	@tools/bootstrap tests
	@.tools/node/bin/node console/tests/bench.ts "$(CARGO_TARGET_DIR)/release/signalbox" $(BENCH_PARTS)

alarms-live: console ## Compare the states of 1,000 live alarms with those that Prometheus gives them; SEED=number for others
	@tools/bootstrap tests
	RULES=1000 cargo test --locked -p signalbox --test it -- --nocapture random_live_rules

webhook-libraries: console ## Have the reference libraries of Standard Webhooks verify 10,000 deliveries each, and refuse as many that are tampered with
	@tools/bootstrap tests
	cargo test --locked -p signalbox --test it -- --ignored --nocapture ten_thousand_deliveries

plugin-peers: build ## Take 3,600 values per channel from devices by six foreign libraries while parts are killed; PEERS='--seed 7' for options
	@tools/bootstrap tests
	tests/device_peers/run.py "$(CARGO_TARGET_DIR)/release/signalbox" $(PEERS)

chaos: console ## Kill parts of the system under load and check that nothing is lost
	@tools/bootstrap tests
	$(CARGO_BUILD) --test chaos
	cargo test --release --locked -p signalbox -p signalbox-agent --test chaos -- --ignored --nocapture --test-threads 1

abuse: console ## Abuse the system in every known way while a bystander measures; ABUSE_ONLY=name for one of them
	$(CARGO_BUILD) --test abuse
	cargo test --release --locked -p signalbox -p signalbox-agent --test abuse -- --ignored --nocapture --test-threads 1

scale: console ## Measure more workers and gateways, and how long a part of them is missed that is killed
	cargo bench --locked -p signalbox --bench signalbox -- workers
	$(CARGO_BUILD) --test scale
	cargo test --release --locked -p signalbox -p signalbox-agent --test scale -- --ignored --nocapture --test-threads 1

fuzz: ## Feed made-up bytes to the decoder of datapoints for FUZZ_SECONDS (60); needs cargo-fuzz
	cd infra/datapoint_log && RUSTC_BOOTSTRAP=1 cargo fuzz run codec --sanitizer none -- \
		-max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=4096

bootstrap:
	@tools/bootstrap
