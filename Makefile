# Everything a developer types. `make` alone prints the list; the text after `##` is what it prints.
#
# Each target first brings .venv and the extension module up to date, and that costs nothing when they are.
# PYTHON=python3.12 picks another interpreter, TORCH=cpu the CPU build of torch (both only when .venv is made).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PYTHON ?= python3
export TORCH ?=
export VIRTUAL_ENV := $(CURDIR)/.venv
export PATH := $(VIRTUAL_ENV)/bin:$(PATH)
# One interpreter for every cargo call, or PyO3 is built anew whenever the caller's changes.
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH
# Without caches each process that imports torch, and tests start a hundred of them, compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

RUST := $(shell find crates -name '*.rs' -o -name '*.toml') Cargo.toml Cargo.lock
ENV := .venv/.env.stamp
CORE := .venv/.core.stamp
READY := .venv/.ready.stamp

SECONDS := 60

.PHONY: help demo test soak ray-test integrations flower wheel check check-rust check-python loom sanitize sanitize-quick fuzz bench torch-suite programs gpu-check first-hour site build lock format clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## Train four workers behind home uplinks of 10 Mbit/s, tweed beside DDP on Gloo; report time and bytes to one accuracy
	tweed train --task fashion-mnist --workers 4 --steps 64 --strategy local_top_k:8 --against ddp-gloo \
		--network rate=10mbit --or-unshaped --fallback digits

# One thread each, as torchrun gives its ranks: several ranks share the cores here, and torch's threads wait for each other by spinning.
test: export OMP_NUM_THREADS := 1
test: $(READY) ## Run all tests: Rust, Python, and the quick part of torch's own suite
	@tools/cargo-test.sh
	pytest -n 2 --dist worksteal -m "not ray_cluster and not soak"
	pytest tests/ray -m ray_cluster -o faulthandler_timeout=620
	python -m tests.torch_suite --quick

check: check-rust check-python ## Run every lint: format, clippy, ruff, mypy, stubs, imports

check-rust: $(CORE)
	@cargo fmt --version >/dev/null && cargo clippy --version >/dev/null \
		|| { echo "rustfmt or clippy is missing: rustup component add rustfmt clippy" >&2; exit 1; }
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings

check-python: $(CORE)
	ruff check
	ruff format --check
	mypy
	python -m mypy.stubtest tweed._core --concise --mypy-config-file tools/stubtest.ini
	lint-imports --no-logo

loom: $(ENV) ## Walk all interleavings of the wake-ups between threads and processes
	@tools/sanitize.sh loom

sanitize-quick: $(READY) ## Run what CI runs of `make sanitize`: loom, the C++ backend's addresses, the engine's threads
	@tools/sanitize.sh loom backend threads-quick

sanitize: $(READY) ## Run loom, address, thread and undefined-behaviour checks, as far as the compilers here can
	@tools/sanitize.sh loom backend addresses undefined threads

soak: export OMP_NUM_THREADS := 1
soak: $(READY) ## Run the tests that `make test` leaves out as slow: more seeds, and quick looks at published systems
	pytest -n 2 --dist worksteal -m soak

ray-test: $(READY) ## Test tweed under Ray, with what takes longest: a cluster of three raylets, three minutes
	TWEED_TEST_RAY=1 OMP_NUM_THREADS=1 pytest tests/ray -o faulthandler_timeout=620

integrations: $(READY) ## Test tweed under Lightning, Accelerate and Transformers: one to four minutes
	TWEED_TEST_INTEGRATIONS=1 OMP_NUM_THREADS=1 pytest tests/integrations tests/torch/test_torchrun_elastic.py

flower: $(READY) ## Test tweed under Flower, in an environment of its own: one minute, and a download of Flower
	@tools/flower.sh

fuzz: $(ENV) ## Fuzz each target for SECONDS=60 and add what is new to fuzz/corpus
	@SECONDS_EACH=$(SECONDS) tools/fuzz.sh

bench: $(READY) ## Measure tweed beside Gloo, OpenMPI and iperf3, and rewrite docs/benchmarks.md
	python -m bench

torch-suite: $(READY) ## Run torch's distributed_test over tweed and Gloo; rewrite docs/torch-suite.md
	python -m tests.torch_suite

programs: $(READY) ## Run programs and features over Gloo and over tweed, in turn; rewrite docs/programs.md
	rm -f tests/programs/results.jsonl
	OMP_NUM_THREADS=1 python -m tests.programs

# A machine with a GPU may have neither Rust nor a network: where the extension module is, nothing is built.
gpu-check: export PYTHONPATH := python
gpu-check: export OMP_NUM_THREADS := 1
gpu-check: $(if $(wildcard python/tweed/_core*.so),,$(READY)) ## Run on one GPU all that is written for CUDA tensors, beside Gloo and NCCL: eight minutes at most
	$(or $(wildcard .venv/bin/python),$(PYTHON)) -m tests.gpu

wheel: $(READY) ## Build the wheel into dist/, and run the README's example from it in an empty environment without a compiler
	@tools/wheel.sh

first-hour: wheel ## Walk a user's first hour from the wheel alone: ten lines, the first report, two hosts over ssh (as root)
	python -m tests.first_hour

site: $(ENV) ## Build the documentation as a site in target/site; a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build

build: $(READY) ## Install what is needed and build the extension module

lock: $(ENV) ## Renew requirements.lock from pyproject.toml
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --group tools \
		$(addprefix --extra ,metrics otel privacy ray lightning accelerate transformers) \
		--group docs --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		pyproject.toml --output-file requirements.lock

format: $(ENV) ## Put Rust and Python into the format that `make check` asks for
	cargo fmt --all
	ruff check --fix --quiet
	ruff format --quiet

clean: ## Remove what was built and installed (runs/ and downloaded data stay)
	rm -rf .venv target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find python tests bench -name __pycache__ -prune -exec rm -rf {} +
	rm -f python/tweed/_core*.so

$(ENV): requirements.lock tools/venv.sh tools/system.sh
	tools/system.sh
	tools/venv.sh
	@touch $@

$(CORE): $(ENV) $(RUST) pyproject.toml
	@echo "Building the extension module (about a minute the first time)"
	@uv pip uninstall --quiet tweed 2>/dev/null || true # its name until 0.2.0
	@uv pip install --quiet --no-deps --no-build-isolation --reinstall-package tweed-train --editable .
	@touch $@

# Without a C++ compiler the Python backend takes over, and says so.
$(READY): $(CORE) $(wildcard python/tweed/torch/csrc/* python/tweed/torch/build.py)
	@python -c 'from tweed.torch import build; build.build()' || echo "tweed goes on without its C++ backend" >&2
	@touch $@
