# Two commands do everything: `make demo` predicts a measured workload, `make test` checks the house.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint bench accuracy clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

demo: setup
	@$(BIN)/servecast demo

test: setup
	@$(BIN)/python -m pytest

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/python -m tests.bench

accuracy: setup
	@$(BIN)/servecast accuracy --update README.md

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
