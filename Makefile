# make run: everything from a fresh clone to a running installation. make check test: what a change must pass.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Tests wait more than they compute: two processes of them, each with servers of its own.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test check bench faults lock clean

help:
	@echo 'make run      set up, then run an installation here (options in ARGS, as in ARGS="--workers 2")'
	@echo 'make setup    make $(VENV) with everything that running needs'
	@echo 'make test     set up for development, then run the tests (options in ARGS)'
	@echo 'make check    format, lint, types, imports, locks'
	@echo 'make bench    measure'
	@echo 'make faults   deal random faults for as long as you like (options in ARGS, as in ARGS="--rounds 20 --seed 7")'
	@echo 'make lock     compile the lock files anew (needs uv)'

setup: $(VENV)/.installed

setup-dev: $(VENV)/.installed-dev

# The pip of the environment; where it has none, that of the system working on the environment.
define find-pip
pip() { \
  if $(BIN)/python3 -m pip --version >/dev/null 2>&1; then $(BIN)/python3 -m pip "$$@"; \
  else $(PYTHON) -m pip --python $(BIN)/python3 "$$@"; fi; }
endef
INSTALL := install -q --no-input --disable-pip-version-check

# Debian's Python comes without ensurepip, and without pip too: each way in turn, then the command that helps.
# What a way left behind half-made is removed before the next.
$(VENV)/.python: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'Python 3.11 or newer is needed and $(PYTHON) is not; name one: make setup PYTHON=python3.12' >&2; exit 1; }
	@usable() { $(BIN)/python3 -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' 2>/dev/null \
	    && { $(BIN)/python3 -m pip --version || $(PYTHON) -m pip --python $(BIN)/python3 --version; } >/dev/null 2>&1; }; \
	usable && { touch $@; exit 0; }; \
	for way in '$(PYTHON) -m venv' '$(PYTHON) -m virtualenv -q' 'virtualenv -q -p $(PYTHON)' \
	    'uv venv -q --seed -p $(PYTHON)' '$(PYTHON) -m venv --without-pip'; do \
	  rm -rf $(VENV); \
	  $$way $(VENV) >/dev/null 2>&1 && usable && { touch $@; exit 0; }; \
	done; \
	rm -rf $(VENV); \
	echo 'This Python has no way to make a virtual environment. On Debian or Ubuntu this helps:' >&2; \
	echo '  apt-get install python3-venv' >&2; \
	exit 1

$(VENV)/.installed: requirements.lock pyproject.toml | $(VENV)/.python
	@echo 'Setting up $(VENV); this takes a minute the first time.'
	@$(find-pip); pip $(INSTALL) --require-hashes -r requirements.lock
	@$(find-pip); pip $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@echo 'Setting up $(VENV) for development.'
	@$(find-pip); pip $(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

run: setup
	@exec $(BIN)/carillon up $(ARGS)

test: setup-dev
	$(BIN)/python3 -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(find-pip); pip check

bench: setup-dev
	$(BIN)/python3 -m tests.bench.burst $(ARGS)

faults: setup-dev
	$(BIN)/python3 -m tests.faults.mix $(ARGS)

lock:
	@command -v uv >/dev/null || { echo 'uv is needed: pip install uv' >&2; exit 1; }
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  pyproject.toml --group build -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  pyproject.toml --group build --group dev -o requirements-dev.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
