# Two commands: `make demo` shows it, `make check` proves it. All results are under build/.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
VENV := build/venv
NATIVE := build/native

.PHONY: help setup build demo check bench simulate format lint soak clean
help:
	@echo 'make demo     set up, build, move the KV blocks of an hour of chat between two processes (ARGS=…), and replay'
	@echo '              the hour against a pool of memory that evicts all the time (REPLAY=…)'
	@echo 'make check    set up, build, and run all tests and lints'
	@echo 'make build    the library in $(NATIVE), and all of it installed in $(VENV)'
	@echo 'make bench    measure, beside memcpy and raw sockets (ARGS=…)'
	@echo 'make simulate tens of thousands of seeds through the simulated store, and its planted mistakes (ARGS=…)'
	@echo 'make soak     a store under load whose processes are killed, for SOAK seconds (3600)'
	@echo 'make setup    install what building and checking needs'
	@echo 'make format   format the C and Python files;  make lint: the lints alone;  make clean: remove build/'

setup:
	@tools/setup check

build:
	@tools/setup build
	@tools/build

demo: build
	@echo 'demo: from one process to another'
	@$(VENV)/bin/mooncake-demo $(ARGS)
	@echo
	@echo 'replay: a pool of memory, under constant eviction'
	@$(VENV)/bin/mooncake replay $(REPLAY)

check: setup
	@python3 tools/check.py $(ARGS)

bench: build
	@$(VENV)/bin/python tests/bench/run.py $(ARGS)

simulate: setup
	@tools/simulate $(ARGS)

format: setup
	@clang-format -i $$(git ls-files '*.c' '*.h')
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

lint: setup
	@python3 tools/check.py --only lint

SOAK ?= 3600
soak: setup build
	@MOONCAKE_SOAK_SECONDS=$(SOAK) $(VENV)/bin/pytest -q -s -p no:cacheprovider tests/fault/test_load.py $(ARGS)

clean:
	@rm -rf build
