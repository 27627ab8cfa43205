# Each target sets up what it needs: nothing has to be installed by hand first. Safe to repeat; quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

JAVASCRIPT := examples/javascript/node_modules/.ready
BROWSER := examples/browser/node_modules/.ready

.PHONY: demo test test-all torture check docs dist bench clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

# The examples in JavaScript are tested where npm is found; without it their tests say that they were skipped.
$(JAVASCRIPT) $(BROWSER): examples/%/node_modules/.ready: examples/%/package-lock.json
	if command -v npm > /dev/null; then \
	  cd examples/$* && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.ready; fi

demo: $(READY)  ## train ELF on the embedded data, evaluate, calibrate, write the report
	$(BIN)/elfnet train --out runs/demo --overwrite

TESTS := $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(READY) $(JAVASCRIPT)  ## the fast tests
	$(TESTS)

# Tools of others that the slow tests run; no part of elfnet needs them.
TOOLS := accelerate datasets ipykernel lightning nbclient nbformat torchmetrics

test-all: $(READY) $(JAVASCRIPT) $(BROWSER)  ## also the slow tests, and those that need Ray
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,ray,track]" $(TOOLS)
	$(TESTS) -m ""

# The campaign of faults, from a seed: make torture SEED=1. Pieces that are done are kept in build/torture, so that it can be
# interrupted and resumed; hours on two cores. With SECONDS=3000 it starts no piece after this time.
SEED ?= 0
SECONDS ?= inf
torture: $(READY)  ## kills, full disks, damaged files, raw HTTP, fuzzing, soak; writes benchmarks/results/torture.json
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[torture]"
	$(BIN)/python tests/faults/torture.py campaign --seed $(SEED) --seconds $(SECONDS) --work build/torture --out benchmarks/results/torture.json

check: $(READY)  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

dist: $(READY)  ## build wheel and sdist into dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	rm -rf dist && $(BIN)/python -m build --outdir dist .

# Calibrated runs on CIFAR-10-LT: RUN of ResNet-32 with exits, for the benchmarks of inference, report and service, and
# PLAIN of smaller networks without, to compare it with: make bench RUN=... PLAIN="... ..."
RUN ?=
PLAIN ?=
NEED_RUN := $(patsubst %,benchmarks/bench_%.py,inference int8 serve report)
NEED_PLAIN := benchmarks/bench_smaller_networks.py
NEED_TWO_TRAININGS := benchmarks/bench_less_work.py

bench: $(READY)  ## all benchmarks, one after the other; wants a quiet machine
	for file in $(filter-out $(NEED_RUN) $(NEED_PLAIN) $(NEED_TWO_TRAININGS),$(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$file || exit 1; done
	if [ -z "$(RUN)" ]; then echo "left out without RUN=...: $(NEED_RUN)"; else \
	  for file in $(NEED_RUN); do $(BIN)/python $$file $(RUN) || exit 1; done; fi
	if [ -z "$(RUN)" ] || [ -z "$(PLAIN)" ]; then echo "left out without RUN=... PLAIN=...: $(NEED_PLAIN)"; else \
	  $(BIN)/python $(NEED_PLAIN) $(RUN) $(PLAIN); fi

clean:
	rm -rf $(VENV) examples/*/node_modules site dist build .mypy_cache .ruff_cache .pytest_cache
