# `make` alone says what there is. GNU make, Python 3.11+ and g++ are all that is asked for.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.setup-stamp
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test test-fast check bench docs clean

help: ## this list
	@$(PYTHON) -c 'import re; [print(f"  make {a:<10} {b}") for a, b in re.findall(r"^([a-z-]+):.*?## (.*)", open("Makefile").read(), re.M)]'

setup: $(STAMP) ## make .venv: torch, Horovod (built once, then cached), Daylight; a second call does nothing
$(STAMP): pyproject.toml scripts/setup scripts/horovod
	PYTHON="$(PYTHON)" scripts/setup
	@touch $@

demo: setup ## run the quickstart notebook in a real kernel, worker's death included
	$(BIN)/python scripts/demo.py

lab: setup ## open the quickstart notebook in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) binder/quickstart.ipynb

test: setup ## every test
	$(PYTEST)

test-fast: setup ## the tests that start no worker processes and no kernels
	$(PYTEST) -m "not distributed and not notebook"

check: setup ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## every benchmark, one after the other; each prints a ratio against its named peer
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

docs: setup ## draw the state diagrams of docs/architecture.md anew
	$(BIN)/python docs/draw_states.py

clean: ## remove what builds and tests leave; .venv and cached wheels stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
