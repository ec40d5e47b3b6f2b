# log-partitioner. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROCESSES ?= 3

.PHONY: help
help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Environment
.PHONY: setup
setup: $(VENV)/.installed  ## make the virtual environment from the lock file

$(VENV)/.installed: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Fetching Python packages, once: 490 MB to download, 1.5 GB in $(VENV); some two minutes."
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements-dev.lock \
	  | awk -v of="$$(grep -c == requirements-dev.lock)" '/^Collecting/ && ++n % 10 == 0 {say(n " of " of " looked up")} \
	    /^Installing/ {say("all are here, installing them")} function say(text) {print "  " text; fflush()}'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Cargo 1.85 or newer: Debian and Ubuntu have it as `cargo` (trixie, 25.04) or `cargo-web` (bookworm), others by rustup.
.PHONY: native
native: $(VENV)/.native  ## build the fast lane into the virtual environment (needs cargo; without it all is Python)

$(VENV)/.native: $(VENV)/.installed $(shell find native -name '*.rs' -o -name 'Cargo.*' -o -name '*.toml')
	@tools/require-cargo.sh
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --force-reinstall ./native
	@touch $@

##@ See it work
.PHONY: demo
# make demo                                    generated logs, three workers, two faults, table and audit on Spark
# make demo ARGS='--audit small'               the same without Spark
# make demo INPUT=logs.ndjson.zst USER_PATH='id\.orig_h' TIME_PATH=time [ID_PATH=id]   one file, one path each
# make demo ARGS='--input a.log b.log --user-path user account'                        several
# make demo ARGS='--entries 500000 --protocol consumer --layout pack'
demo: setup  ## real Kafka, real S3, three workers, faults while logs flow, then table and audit on Spark
	@if tools/require-cargo.sh; then $(MAKE) --no-print-directory native || echo "It is not built: on in Python."; fi
	$(BIN)/python -m tools.demo $(call option,--input,INPUT) $(call option,--user-path,USER_PATH) \
	  $(call option,--time-path,TIME_PATH) $(call option,--id-path,ID_PATH) $(ARGS)

# The value of a variable as one word for the shell, exactly as it was given: neither make nor shell reads it again.
option = $(if $(value $(2)),$(1)='$(subst ','\'',$(value $(2)))')

.PHONY: up down
up: setup  ## start Kafka and S3, create topics and bucket, keep them running; SOURCE=app-logs names the source topic
	@$(BIN)/python -m tools.local up $(call option,--source,SOURCE)

down: setup  ## stop what `make up` started; WIPE=1 removes topics and objects too
	@$(BIN)/python -m tools.local down $(if $(WIPE),--wipe)

##@ Tests
.PHONY: test test-all sim failures
# Each process has its own servers, which wait for some of the time: three keep two cores busy.
PYTEST := $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadscope --no-loadscope-reorder
QUICK := main_path or not (slow or integration or spark or sweep)
# Always the same, so that a failure is of the change: `make sim` runs more, and counts what never happened in a thousand.
SEEDS_OF_ALL := 60
# Other seeds each day: their numbers are in the header, and `make sim SEED=n` shows one again.
SEED_OF_TODAY := $(shell echo $$(( $$(date +%s) / 86400 * 200 )))
test: setup  ## what trusts a change: lint, types, all that is pure, 200 seeds, one way through real Kafka, S3 and Spark
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint type
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m '$(QUICK)' --seeds 200 --first-seed $(SEED_OF_TODAY) $(PYTEST_ARGS)

test-all: setup  ## all tests, as CI runs them: real logs, kills, faults on three brokers
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint type
	$(BIN)/python -m tools.spark_classes
	$(PYTEST) --seeds $(SEEDS_OF_ALL) --too-slow 30 $(PYTEST_ARGS)

sim: setup  ## SEEDS=1000 seeds of workers under faults in virtual time; SEED=n shows one again, shrunk
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000)) $(ARGS)

failures: setup chart-tools  ## what the runbook lists, for real: does the alert fire, does the command help? NAMES='store-away', or an hour
	$(BIN)/python -m tests.failures $(NAMES)

##@ Measure
.PHONY: bench
bench: setup  ## what an entry costs in both lanes and elsewhere: docs/PERFORMANCE.md; ARGS='--rounds 1 --resume'
	$(BIN)/python -m bench.page $(ARGS)

##@ Checks
.PHONY: lint fmt type
lint: setup  ## ruff, import rules, spelling, Dockerfile
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports
	$(BIN)/codespell service pipeline deploy tools tests docs README.md
	$(BIN)/hadolint --ignore DL3008 Dockerfile .devcontainer/Dockerfile  # DL3008: Debian serves the newest build of a version, and no other

fmt: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

type: setup  ## mypy, strict
	$(BIN)/mypy

include tools/chart.mk
include tools/image.mk
include tools/release.mk
