# The verbs a newcomer needs. Everything is installed into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help setup demo test lint bench clean

help:
	@echo "make demo    train shoal for about two minutes and write its report"
	@echo "make test    run all tests"
	@echo "make setup   make .venv and install Holdfast into it"
	@echo "make lint    ruff and mypy"
	@echo "make bench   measure against the peers (some 100 minutes; BENCH_ARGS=--quick: minutes)"
	@echo "make clean   remove .venv and caches (runs are kept)"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,gym,multi,report,study]"
	$(BIN)/python -m pip install --quiet --no-deps gym-super-mario-bros==7.4.0
	$(BIN)/python -m compileall -q src
	touch $@

demo: setup
	$(BIN)/holdfast train shoal --run demo-$$(date +%Y%m%d-%H%M%S)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

# The peers live in .venv-bench. One that does not install is reported in the table and stops nothing.
BENCH_VENV := .venv-bench
bench: $(BENCH_VENV)/.ready
	$(BENCH_VENV)/bin/python bench/run.py $(BENCH_ARGS)

$(BENCH_VENV)/.ready: constraints.txt $(wildcard bench/requirements*.txt) bench/install_puffer.sh
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH_VENV)/bin/python -m pip install --quiet -r bench/requirements.txt
	$(BENCH_VENV)/bin/python -m pip install --quiet -c bench/requirements.txt -e .
	while read -r peer; do \
		$(BENCH_VENV)/bin/python -m pip install --quiet -c bench/requirements.txt $$peer \
			|| echo "bench: did not install: $$peer"; \
	done < bench/requirements-peers.txt
	sh bench/install_puffer.sh $(BENCH_VENV)/bin/python || echo "bench: did not install: pufferlib"
	touch $@

# gym-super-mario-bros, for bench/mario_worlds.py: it needs NumPy 1.
.venv-mario/.ready: bench/requirements-mario.txt
	$(PYTHON) -m venv .venv-mario
	.venv-mario/bin/python -m pip install --quiet -r bench/requirements-mario.txt
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
