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
	@echo "make clean   remove .venv and caches (runs are kept)"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,gym,multi]"
	$(BIN)/python -m pip install --quiet --no-deps gym-super-mario-bros==7.4.0
	touch $@

demo: setup
	$(BIN)/holdfast train shoal --run demo-$$(date +%Y%m%d-%H%M%S)

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
