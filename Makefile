# `make help` prints what there is. Everything prepares itself: a fresh clone needs only Python 3.11, gcc and apt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
SUDO := $(shell [ $$(id -u) = 0 ] || command -v sudo || echo none)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
C_FILES = $(shell git ls-files '*.c' '*.h')
SOURCES = $(shell find src core port storage bpf -type f -not -name '*.pyc')

.PHONY: help setup demo test quick bench check fuzz nightly sanitize lock format pynfs

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## prepare .venv and build the package

.venv/packages: requirements.txt packages.txt
	@missing=$$(for p in $$(grep -v '^#' packages.txt); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ] && [ "$(SUDO)" = none ]; then \
	  echo "missing, and only root can install them:" $$missing; \
	elif [ -n "$$missing" ]; then echo "installing:" $$missing; \
	  $(SUDO) apt-get -o Acquire::Retries=3 update -qq; \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y -qq --no-install-recommends $$missing >/dev/null; fi
	$(PYTHON) -m venv .venv
	pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

# Installed, not editable: an editable package builds itself when it is imported, which only its owner may.
.venv/ready: .venv/packages meson.build meson.options pyproject.toml $(SOURCES)
	pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=build/package .
	@touch $@

demo: setup ## sessions pile up on one connection, and its DMA memory grows under them
	livedma demo $(OPTIONS)

test: check sanitize ## everything that CI runs
	pytest
	$(MAKE) fuzz

quick: check ## lint, types and the tests that take no time
	pytest -m 'not slow'

bench: setup ## ours, the peers' and the limit, side by side
	python -m bench

pynfs: setup ## the pynfs 4.1 suite against our NFS server (PYNFS=DIR: a checkout; TESTS=all)
	python tests/pynfs.py $(PYNFS) $(TESTS)

check: setup ## lint, formatting and types
	ruff check --output-format concise
	ruff format --check -q
	clang-format --dry-run --Werror $(C_FILES)
	mypy
	python -m mypy.stubtest --mypy-config-file pyproject.toml --ignore-disjoint-bases \
	  --allowlist stubtest.txt livedma._native

format: setup ## put all sources into the project's form
	ruff check -q --fix
	ruff format -q
	clang-format -i $(C_FILES)

lock: setup ## resolve requirements.in into requirements.txt
	pip install -q --disable-pip-version-check pip-tools
	pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --strip-extras --allow-unsafe --no-header requirements.in -o requirements.txt

include fuzz/fuzz.mk
