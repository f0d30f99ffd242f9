# Two commands: `make demo` shows it, `make check` proves it. All results are under build/.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
VENV := build/venv
NATIVE := build/native

.PHONY: help setup build demo check bench format lint clean
help:
	@echo 'make demo     set up, build, and move the KV blocks of an hour of chat between two processes (ARGS=…)'
	@echo 'make check    set up, build, and run all tests and lints'
	@echo 'make build    the library in $(NATIVE), and all of it installed in $(VENV)'
	@echo 'make bench    measure, beside memcpy and raw sockets (ARGS=…)'
	@echo 'make setup    install what building and checking needs'
	@echo 'make format   format the C and Python files;  make lint: the lints alone;  make clean: remove build/'

setup:
	@tools/setup check

build:
	@tools/setup build
	@tools/build

demo: build
	@$(VENV)/bin/python -m mooncake.cli.demo $(ARGS)

check: setup
	@python3 tools/check.py $(ARGS)

bench: build
	@$(VENV)/bin/python tests/bench/run.py $(ARGS)

format: setup
	@clang-format -i $$(git ls-files '*.c' '*.h')
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

lint: setup
	@python3 tools/check.py --only lint

clean:
	@rm -rf build
