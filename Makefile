# SPDX-License-Identifier: BSD-2-Clause
# `make help` prints what there is. Everything prepares itself: a fresh clone needs only Python 3.11, gcc and apt.
# The package that developers build treats warnings as errors; `pip install .` does not.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
PIP = pip --disable-pip-version-check
export PATH := $(CURDIR)/.venv/bin:$(PATH)
C_FILES = $(shell git ls-files '*.c' '*.h')
LOCK = pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
  --strip-extras --allow-unsafe --no-header
SOURCES = $(shell find src native bpf -type f -not -name "*.pyc")

.PHONY: help setup demo test quick bench check fuzz nightly sanitize lock format pynfs docs man wheel image

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready .venv/dev ## prepare .venv for development, and build the package

# What building and running need: all that `make demo` installs.
.venv/packages: requirements/run.txt packages.txt
	@.ci/packages
	$(PYTHON) -m venv .venv
	$(PIP) install -q --require-hashes -r requirements/run.txt
	@touch $@

# What checks and tests in Python need besides.
.venv/dev: requirements/dev.txt .venv/packages
	$(PIP) install -q --require-hashes -r requirements/dev.txt
	@touch $@

# The programs that tests and benchmarks need besides.
.venv/tools: packages.txt .venv/dev
	@.ci/packages tests
	@touch $@

# Installed, not editable: an editable package builds itself when it is imported, which only its owner may.
.venv/ready: .venv/packages meson.build meson.options pyproject.toml $(SOURCES)
	$(PIP) install -q --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=build/package \
	  --config-settings=setup-args=-Dwerror=true --config-settings=setup-args=-Dpython.allow_limited_api=false .
	@touch $@

demo: .venv/ready ## sessions pile up on one connection, and its DMA memory grows under them
	livedma demo $(OPTIONS)

# On two cores under 25 minutes: what compiles runs beside what checks types, what waits for guests beside what does
# not, and alone what judges a machine that has nothing else to do (tests/parts.py; `pytest` alone runs all in turn).
test: setup .venv/tools ## everything that CI runs
	$(MAKE) --output-sync --jobs=2 check sanitize
	python tests/parts.py
	$(MAKE) fuzz

quick: check ## lint, types and the tests that take no time
	python tests/parts.py --quick

bench: setup .venv/tools ## compare livedma with its peers and with the hardware limit
	python -m bench

pynfs: setup ## the pynfs 4.1 suite against our NFS server (PYNFS=DIR: a checkout; TESTS=all)
	python tests/pynfs.py $(PYNFS) $(TESTS)

docs: setup ## the reference, an example of a configuration and the drawings of folders, from the code
	python -m livedma.cli.reference docs/reference.md
	python -m livedma.cli.serve.example packaging/livedma.toml
	python docs/graphs.py

man: setup ## manual pages in build/man
	livedma man --write build/man

# One wheel for CPython 3.11 and later: it has Python's limited API, and brings the libraries that it links.
wheel: .venv/ready .venv/dev ## a wheel in dist/ that needs no compiler and no -dev package
	rm -rf build/wheel dist/livedma-*.whl
	$(PIP) wheel -q --no-build-isolation --no-deps --wheel-dir build/wheel \
	  --config-settings=build-dir=build/limited --config-settings=setup-args=-Dpython.allow_limited_api=true .
	auditwheel repair --strip --wheel-dir dist build/wheel/*.whl

image: wheel ## an OCI image of the wheel, dist/livedma-image.tar (as root)
	python packaging/image.py $(IMAGE_OPTIONS) dist/livedma-*.whl dist/livedma-image.tar

check: setup ## lint, formatting and types
	ruff check --output-format concise
	ruff format --check -q
	@clang-format --dry-run --Werror $(C_FILES)
	mypy
	python -m mypy.stubtest --mypy-config-file pyproject.toml --ignore-disjoint-bases \
	  --allowlist stubtest.txt livedma._native

format: setup ## put all sources into the project's form
	ruff check -q --fix
	ruff format -q
	clang-format -i $(C_FILES)

lock: setup ## resolve and lock what runs (pyproject.toml, build.in) and what developers use (dev.in)
	$(PIP) install -q pip-tools
	$(LOCK) --extra all pyproject.toml requirements/build.in -o requirements/run.txt
	$(LOCK) requirements/dev.in -o requirements/dev.txt

include fuzz/fuzz.mk
