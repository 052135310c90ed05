# `make` alone says what there is. GNU make, Python 3.11+ and g++ are all that is asked for.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.setup-stamp
FRONT  := .venv/.front-stamp
# One more than there are cores, as a test waits a quarter of its time; eight at most, each of which has gangs of a few
# gigabytes. Files stay whole, for they share servers.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(len(os.sched_getaffinity(0)), 7) + 1)')
PYTEST  = $(BIN)/python scripts/run_tests.py -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NPM    := PATH="$(CURDIR)/$(BIN):$$PATH" npm --silent

# Containers often forbid Python to keep its bytecode: each of the thousands of processes of the tests would compile
# torch and Daylight again, which is half of the CPU time of their start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock demo lab hub browser test test-long test-kubernetes durations torture test-fast check fix types bench screenshots docs clean

help: ## this list
	@$(PYTHON) -c 'import re; [print(f"  make {a:<10} {b}") for a, b in re.findall(r"^([a-z-]+):.*?## (.*)", open("Makefile").read(), re.M)]'

setup: $(STAMP) $(FRONT) ## make .venv: torch, Horovod (built once, then cached), Daylight; a second call does nothing
$(STAMP): pyproject.toml requirements/dev.txt requirements/left-out.txt scripts/setup scripts/horovod
	PYTHON="$(PYTHON)" scripts/setup
	@touch $@ $(FRONT)

$(FRONT): package.json package-lock.json $(shell find labextension -path labextension/lib -prune -o -type f -print) | $(STAMP)
	scripts/frontend
	@touch $@

browser:
	@scripts/browser

demo: setup ## run the quickstart notebook in a real kernel, worker's death included
	$(BIN)/python scripts/demo.py

lab: setup ## open the quickstart notebook in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) binder/quickstart.ipynb

hub: setup ## a JupyterHub of three users and an admin with Daylight in it, on free ports of this machine
	$(BIN)/python scripts/hub.py

test: setup browser ## every test but the long proofs; one that fails is run once more by itself
	$(NPM) test
	$(PYTEST) -m "not long"

test-long: setup browser ## the tests that take long and whose features shorter ones cover: run them when you change what they prove
	$(PYTEST) -m long

test-kubernetes: setup ## the tests on a real control plane of Kubernetes, which scripts/kubernetes builds once (6 minutes of processor time)
	scripts/kubernetes
	KUBERNETES=require $(BIN)/python -m pytest -m kubernetes tests/engines

durations: setup browser ## run the tests of `make test`, and store the seconds of each test file in tests/durations.csv
	$(PYTEST) -m "not long" --junitxml=build/tests.xml
	$(BIN)/python scripts/durations.py build/tests.xml > tests/durations.csv

torture: setup ## the long proofs: ten thousand notebooks, forty notebooks run from top to bottom with a submitted cell, hundreds of kills, kills on two nodes of Slurm, each program of a corpus killed and its models exported, fifty setups that act on files killed, a DDP script (and with TENSORFLOW_PYTHON=python a Keras script) killed and searched, corruptions and full disks, causes of slow trainings, a million draws, ten thousand histories of a cluster and of a register of models, predictions and evaluations that are killed, trainings killed while they fetch data, a hundred reruns, a search in which everything dies, the example notebooks in full (three quarters of an hour)
	@set -e; for proof in notebooks run_all examples corruptions full_disks draws schedules registers predictions evaluations inputs lateness reruns searches programs exports setups commands kills nodes slowness; do echo "== $$proof"; $(BIN)/python -m tests.torture.$$proof; done

test-fast: setup ## the unit tests: no workers, no kernels, no services, no browser
	$(NPM) test
	$(PYTEST) -m "not many and not long" tests/unit tests/test_layers.py

# At once, as mypy takes half of the time on one core; each shows what it found when it is done.
CHECKS = check-style check-types check-front check-docs
check: setup ## style and types, of both languages, and whether the documentation builds
	@$(MAKE) --no-print-directory --output-sync --jobs --keep-going $(CHECKS)

.PHONY: $(CHECKS)
check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture
check-types:
	$(BIN)/mypy
check-front:
	$(NPM) run check
check-docs:
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

fix: setup ## put right what the style checks can put right by themselves
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NPM) run fix

types: setup ## write the front end's types of what the service sends anew, from the OpenAPI document
	$(NPM) run types

lock: setup ## renew the locked versions of requirements/ from pyproject.toml (scripts/lock --upgrade takes the newest)
	scripts/lock

screenshots: setup browser ## take the pictures of README and docs anew, from a real run in a real browser
	$(BIN)/python scripts/screenshots.py

bench: setup browser ## every benchmark, one after the other; each prints a ratio against its named peer
	HATCH_JUPYTER_BUILDER_SKIP_NPM=1 $(BIN)/python -m pip -qq --disable-pip-version-check install -e ".[bench]"
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

docs: setup ## build the documentation's site, state diagrams and the table of search methods drawn anew before
	$(BIN)/python docs/draw_states.py
	$(BIN)/python docs/draw_methods.py
	$(BIN)/python docs/draw_verbs.py
	$(BIN)/python docs/draw_architecture.py
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

clean: ## remove what builds and tests leave; .venv and cached wheels stay
	rm -rf build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf labextension/lib jupyter_ext/labextension jupyter_ext/views/static kernel_backend/api/static .venv/.front-stamp
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
