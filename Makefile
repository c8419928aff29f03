# `make help` prints what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup demo test quick bench check lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## prepare .venv and build the package

.venv/ready: requirements.txt packages.txt pyproject.toml meson.build
	@missing=$$(for p in $$(grep -v '^#' packages.txt); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; \
	  SUDO=$$([ $$(id -u) = 0 ] || echo sudo); $$SUDO apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
	$(PYTHON) -m venv .venv
	pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	CYTHON=$(CURDIR)/.venv/bin/cython pip install -q --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

lock: setup ## resolve requirements.in into requirements.txt
	pip install -q pip-tools
	pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --strip-extras --allow-unsafe --no-header requirements.in -o requirements.txt

include fuzz/fuzz.mk
