# `make help` prints what there is. Everything prepares itself: a fresh clone needs only Python 3.11, gcc and apt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
C_FILES = $(shell git ls-files '*.c' '*.h')
SOURCES = $(shell find src core port storage bpf -type f -not -name '*.pyc')

.PHONY: help setup demo test quick bench check fuzz nightly sanitize lock format pynfs docs man

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## prepare .venv and build the package

.venv/packages: requirements.txt packages.txt
	@.ci/packages
	$(PYTHON) -m venv .venv
	pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

# What tests and benchmarks need besides.
.venv/tools: packages.txt .venv/packages
	@.ci/packages tests
	@touch $@

# Installed, not editable: an editable package builds itself when it is imported, which only its owner may.
.venv/ready: .venv/packages meson.build meson.options pyproject.toml $(SOURCES)
	pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=build/package .
	@touch $@

demo: setup ## sessions pile up on one connection, and its DMA memory grows under them
	livedma demo $(OPTIONS)

# On two cores under 25 minutes: what compiles runs beside what checks types, what waits for guests beside what does
# not, and alone what judges a machine that has nothing else to do (tests/parts.py; `pytest` alone runs all in turn).
test: setup .venv/tools ## everything that CI runs
	$(MAKE) --output-sync --jobs=2 check sanitize
	python tests/parts.py
	$(MAKE) fuzz

quick: check ## lint, types and the tests that take no time
	python tests/parts.py --quick

bench: setup .venv/tools ## ours, the peers' and the limit, side by side
	python -m bench

pynfs: setup ## the pynfs 4.1 suite against our NFS server (PYNFS=DIR: a checkout; TESTS=all)
	python tests/pynfs.py $(PYNFS) $(TESTS)

docs: setup ## the reference and the example of a configuration, from the code
	python -m livedma.cli.reference docs/reference.md
	python -m livedma.cli.serve.example packaging/livedma.toml

man: setup ## manual pages in build/man
	livedma man --write build/man

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
