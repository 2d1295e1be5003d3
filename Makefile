# Every target sets up what it needs: a virtual environment in .venv from the lock file.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# processes that run tests, a file at a time: tests of one file may share fixed ports
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt lint check test cov bench bench-detection render migrate lock e2e-vllm

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: $(STAMP)  ## Make .venv from the lock file (done by every other target)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup  ## Play the recorded incident against the real service (about 75 seconds)
	$(BIN)/fusewire demo $(ARGS)

fmt: setup  ## Format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup  ## Form, types, import arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint  ## Lint, types, fast tests (about two minutes): before each commit
	$(BIN)/pytest -q -n $(WORKERS) --hypothesis-profile=quick -m 'not slow and not e2e and not bench'

test: setup  ## Every test, with coverage
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m 'not bench' --cov --cov-report=term

cov: setup  ## Every test, with a coverage report in htmlcov/
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m 'not bench' --cov --cov-report=html

bench: setup  ## Measure: ours, the peer, the limit, side by side
	$(BIN)/pytest -q -s -m bench tests/bench --benchmark-disable-gc

bench-detection: setup  ## Measure detection: false alarms against their bound, delays, controls (minutes)
	$(BIN)/pytest -q -s -p no:randomly tests/detectors/sequential/test_promises.py \
	  tests/collector/test_sequential_path.py tests/detectors/test_sequential_days.py \
	  tests/bench/test_bench_detection_step.py

render: setup  ## Write the generated rules, runbook index, boards and reference pages
	$(BIN)/fusewire render rules --write
	$(BIN)/fusewire render reference --write
	$(BIN)/fusewire render dashboards --write

migrate: setup  ## Bring the database of fusewire.yaml to the newest schema
	$(BIN)/fusewire migrate

e2e-vllm: setup  ## Try Fusewire against a real vLLM on this machine's CPU (3.5 GB, docs/try-with-vllm.md)
	tests/e2e/vllm.sh

lock:  ## Write requirements.lock anew from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet 'pip>=25.1' 'pip-tools>=7.5'
	$(VENV)-lock/bin/python -c 'import tomllib; d = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*d["project"]["dependencies"], *d["dependency-groups"]["dev"], sep="\n")' > $(VENV)-lock/requirements.in
	$(VENV)-lock/bin/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	  --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate \
	  -o requirements.lock $(VENV)-lock/requirements.in
