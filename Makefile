# kvstore: build, test and look after it. `make` lists the targets.
#
# Needs Rust (rust-toolchain.toml says which) and Python 3.11 or newer with pip and venv. All else
# comes from crates.io and PyPI into target/ and .venv/.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# maturin finds its environment by these; a conda environment around us is not the one we mean.
MATURIN := env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin
CARGO_TEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo 'cargo nextest run' || echo 'cargo test')
# The extension module needs a Python to run in: tests/python tests it.
RUST_TESTS := --workspace --exclude kvstore-py --locked
# Each test has its directory and its own store: they can run side by side.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4

.DEFAULT_GOAL := help
.PHONY: help build demo demo-torch test test-core test-exhaustive check fmt stubs docs measured deny crash replay-check bench wheel weights clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: $(VENV)/.build ## release build; afterwards .venv/bin/kvstore works
	@$(MATURIN) develop --release --locked --quiet
	@$(BIN)/kvstore --version

demo: build $(VENV)/.demo ## a real model's prefix survives kill -9
	@$(BIN)/kvstore demo

demo-torch: build $(VENV)/.torch ## the same through transformers
	@$(BIN)/kvstore demo --torch

test: build $(VENV)/.torch ## all tests, torch included
	$(CARGO_TEST) $(RUST_TESTS)
	$(PYTEST)

test-core: build $(VENV)/.test ## all tests that need no torch
	$(CARGO_TEST) $(RUST_TESTS)
	$(PYTEST) -m 'not torch'

test-exhaustive: build $(VENV)/.torch ## restored caches of every family at all cuts from 1 to 300 (over an hour)
	KVSTORE_EXHAUSTIVE=1 $(PYTEST) tests/python/test_torch_exact.py --timeout 0

check: build $(VENV)/.lint $(VENV)/.torch ## formatting, lints, types, stubs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(MATURIN) generate-stubs --out target/stubs --quiet
	diff -ru python/kvstore/_core target/stubs/kvstore/_core
	$(BIN)/python -m mypy.stubtest kvstore._core

fmt: $(VENV)/.lint ## format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

stubs: $(VENV)/.build ## write python/kvstore/_core.pyi from the Rust side
	$(MATURIN) generate-stubs --out target/stubs --quiet
	cp target/stubs/kvstore/_core/*.pyi python/kvstore/_core/

docs: build $(VENV)/.docs ## write the pages and pictures that commands make
	$(BIN)/kvstore footprint --pictures docs/img >/dev/null
	$(BIN)/kvstore footprint --lineage docs/lineage.md
	$(BIN)/kvstore layouts --audit --out docs/layouts-audit.txt
	$(BIN)/kvstore codec report --picture docs/img/codec-schemes.png >/dev/null
	$(BIN)/kvstore bench precision --document docs/replay.md --pictures docs/img >/dev/null
	$(BIN)/kvstore bench replay --from docs/replay.json --page docs/replay.md \
		--picture docs/img/replay-measured.png >/dev/null

measured: build $(VENV)/.torch ## run a model of each architecture and count its stored cache (two hours)
	$(BIN)/kvstore footprint --all --measured --out python/kvstore/footprint/lineage/measured.json
	$(BIN)/kvstore footprint --lineage docs/lineage.md

deny: ## licences, bans and sources of the dependencies (builds cargo-deny once: minutes)
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny@0.20.2
	cargo deny --offline check bans licenses sources

crash: ## kill -9 a writing child at random moments, a thousand times
	KVSTORE_CRASH_CYCLES=1000 cargo test --locked --release -p kvstore-engine --test crash -- --nocapture

replay-check: build $(VENV)/.demo ## the acceptance replays of the public traces, all capacities
	$(BIN)/python tests/replay_check.py ../shared/traces

bench: build $(VENV)/.torch ## measure against what stands next to each figure
	$(BIN)/kvstore bench codec
	$(BIN)/kvstore bench replay

wheel: $(VENV)/.build ## dist/*.whl
	$(MATURIN) build --release --locked --strip --out dist

weights: build $(VENV)/.torch ## train the demo model again (half an hour)
	$(BIN)/python -m kvstore.models.demo.train

clean: ## remove what make wrote, but not the crates' builds
	rm -rf $(VENV) dist python/kvstore/_core.abi3.so

# The environment, in the layers that the targets need. pyproject.toml pins what goes in.
$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'kvstore needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'
	@touch $@

$(VENV)/.build: pyproject.toml $(VENV)/.venv
	$(PIP) install --group build
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.venv
	$(PIP) install --group demo
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.venv
	$(PIP) install --group test
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.venv
	$(PIP) install --group docs
	@touch $@

$(VENV)/.torch: pyproject.toml $(VENV)/.test
	$(PIP) install --group torch
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.test
	$(PIP) install --group lint
	@touch $@
