# Two commands matter: `make run` and `make test`. Both set up what they need; the second time they fetch nothing.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
LOCKED = $(UV) pip install --quiet --python $(BIN)/python --no-build-isolation --require-hashes
# First from what uv has: a mirror that does not say how long a file stays has it fetch and build PySpark anew for each clone,
# a minute and 1.4 GB of its cache. The hashes hold in both ways.
define locked
$(LOCKED) --offline -r $(1) 2>/dev/null || $(LOCKED) -r $(1)
endef
# What `make test` and `make unit` run instead of all (a file, -k …), and how they tell of it (--junitxml=…).
PYTEST_ARGS ?=
PYTEST_OPTIONS ?=
# What `make test-all` runs: folders, files, or an expression with -k or -m; all of it if empty.
PART ?=
NIGHT_ARGS ?=
HEALTHY_ARGS ?=
PLANTED_ARGS ?=
# Most tests with brokers wait: one worker more than there are processors. How they share the tests: tests/support/spread.py
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
QUICK := tests/unit tests/lab tests/model tests/repo
# Where this folder has an umlaut in its path, Python and Java find nothing of it in the locale C.
ifneq ($(shell locale charmap 2>/dev/null),UTF-8)
export LC_ALL := C.UTF-8
endif

# Hundreds of processes import the same modules. Where nothing may be kept, as in many images of containers, each compiles
# them anew: a quarter of the processor that tests with brokers take.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test test-all unit model lint nightly planted setup setup-dev tools doctor bench healthy healthy-groups soak scale schema lock clean

# How long each takes was measured on two cores, with everything fetched before.
help: ## show this list (at once)
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: setup ## set everything up and run the main job, acks 0/1/all x min.insync.replicas 1/2 (2 minutes)
	@$(BIN)/ackproof run experiments/acks-matrix.yaml

test: setup-dev ## set everything up and pass the tests, real brokers included (14 minutes on two cores)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
ifeq ($(strip $(PYTEST_ARGS)),)
	@$(BIN)/pytest -m alone $$(grep -rl pytest.mark.alone tests)
	@$(BIN)/pytest -n $(WORKERS) -m "not alone" $(PYTEST_OPTIONS)
else
	@$(BIN)/pytest $(PYTEST_OPTIONS) $(PYTEST_ARGS)
endif

test-all: setup-dev ## all tests, those of the night too, or PART of them: make test-all PART=tests/docker (2 hours)
	@$(BIN)/pytest --nightly -n $(WORKERS) $(PYTEST_OPTIONS) $(PART)

unit: setup-dev ## the tests that need neither Java nor a browser (3 to 5 minutes)
	@$(BIN)/pytest -n $(WORKERS) $(PYTEST_OPTIONS) $(or $(PYTEST_ARGS),$(QUICK))

model: setup-dev ## the tests of the reference implementation, which run when it changes (1 minute)
	@$(BIN)/pytest -n $(WORKERS) $(PYTEST_OPTIONS) tests/model

lint: setup-dev ## ruff, mypy and the layers (15 seconds, 1 the second time)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

nightly: setup-dev ## all experiments x releases x backends, storms, slow tests; NIGHT_ARGS=--list says which (hours)
	@$(BIN)/python tools/nightly.py $(NIGHT_ARGS)

planted: setup-dev ## run the bugs that are planted in Kafka: is each noticed? Writes docs/sensitivity.md; goes on where it stopped (2 hours)
	@$(BIN)/python -m tools.planted.run --out runs/planted --update $(PLANTED_ARGS)

doctor: setup ## say what this machine has, what it lacks, how to get it (3 seconds)
	@$(BIN)/ackproof doctor

bench: setup-dev ## audit, producer, reader and start against their references, side by side (some minutes)
	@$(BIN)/python tools/bench/bench_audit.py
	@$(BIN)/python tools/bench/bench_audit.py --groups
	@$(BIN)/python tools/bench/workload.py
	@$(BIN)/python tools/bench/start.py
	@$(BIN)/python tools/bench/simulator.py
	@$(BIN)/python tools/bench/request_proxy.py
	@$(BIN)/python tools/bench/groups.py --repeats 1

healthy: setup-dev ## 300 runs in which nothing may be found: each must be a PASS; goes on where it stopped (2 hours)
	@$(BIN)/python tools/bench/healthy.py --runs 300 $(HEALTHY_ARGS)

healthy-groups: setup-dev ## 100 runs with three consumer groups each, in which nothing may be found; goes on where it stopped (1 hour)
	@$(BIN)/python tools/bench/healthy.py --groups --runs 100 --out runs/healthy-groups $(HEALTHY_ARGS)

soak: setup-dev ## an hour of load with storms, audited window by window; planted lies are found, nothing grows (1 hour)
	@$(BIN)/python tools/bench/soak.py --lies 3000,3060,3120 -- run experiments/soak.yaml --soak 1h --keep 3 $(SOAK_ARGS)

scale: setup-dev ## the audit of 10^8 rows by one worker of a Spark cluster and by two, from files and from S3 (20 minutes; 8 GiB)
	@$(BIN)/python tools/bench/scale.py --records 31000000 --folder --rounds 3 $(SCALE_ARGS)
	@$(BIN)/python tools/bench/scale.py --records 31000000 --layout own --grows inf --start inf --most inf

schema: setup ## write experiments/experiment.schema.json anew (1 second)
	@$(BIN)/ackproof schema > experiments/experiment.schema.json

setup: tools $(VENV)/.run-ready ## install what running needs (10 seconds; 5 minutes where PySpark, 450 MB, is to be fetched)

setup-dev: tools $(VENV)/.dev-ready ## install what testing needs (1 second more)

# Not needed to install Python's packages: CI does that while it installs these.
tools:
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { echo "make: Java is missing (17 or newer). Install it: apt-get install openjdk-17-jre-headless" >&2; exit 254; }
	@command -v mvn >/dev/null || ls "$${ACKPROOF_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/ackproof}"/kafka-* >/dev/null 2>&1 || { echo "make: Maven is missing (it fetches Kafka's jars, once). Install it: apt-get install maven" >&2; exit 254; }

$(VENV)/.bootstrapped: requirements/bootstrap.lock requirements/build.lock
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing. Install it: apt-get install python3 python3-venv" >&2; exit 254; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed, $$($(PYTHON) --version) is here. Install it, or name another: make PYTHON=python3.12 …" >&2; exit 254; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: Python's venv is missing. Install it: apt-get install python3-venv" >&2; exit 254; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	@$(call locked,requirements/build.lock)
	@touch $@

$(VENV)/.run-ready: $(VENV)/.bootstrapped requirements/run.lock pyproject.toml
	@echo "installing locked dependencies (PySpark is 450 MB the first time)"
	@$(call locked,requirements/run.lock)
	@$(UV) pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps --editable .
	@# Python reads this file in the locale's encoding, and cannot even start where it fails: no umlaut stands in it.
	@$(BIN)/python -c 'import os, pathlib, sysconfig; f = pathlib.Path(sysconfig.get_path("purelib"), "_ackproof.pth"); \
		f.write_text("".join(os.path.relpath(line, f.parent) + "\n" for line in f.read_text("utf-8").splitlines()))'
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready requirements/dev.lock
	@echo "installing locked development dependencies"
	@$(call locked,requirements/dev.lock)
	@touch $@

lock: $(VENV)/.bootstrapped ## resolve all dependencies anew and write the locks with hashes (20 seconds)
	@cd requirements && for l in bootstrap build; do ../$(UV) pip compile --quiet --upgrade --generate-hashes --no-header --universal --python-version 3.11 $$l.in -o $$l.lock; done
	@cd requirements && ../$(UV) pip compile --quiet --upgrade --generate-hashes --no-header --universal --python-version 3.11 -c build.lock --extra dev ../pyproject.toml -o dev.lock
	@cd requirements && ../$(UV) pip compile --quiet --upgrade --generate-hashes --no-header --universal --python-version 3.11 -c build.lock -c dev.lock ../pyproject.toml -o run.lock

clean: ## end what dead runs left behind, remove their broker data; ledgers and logs stay (1 second)
	@$(BIN)/ackproof clean
