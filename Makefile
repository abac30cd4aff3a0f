# Two commands do everything: `make demo` predicts a measured workload, `make test` checks the house.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A real vLLM for the CPU, in an environment of its own: 3.5 GB, two to four minutes. It wants Python 3.11, named here
# where it is not found: make test-engine ENGINE_PYTHON=/path/to/python3.11
ENGINE_PYTHON ?=
ENGINE := .venv-engine
ENGINE_STAMP := $(ENGINE)/.installed

.PHONY: setup demo test test-browser screenshots test-engine lint bench validation accuracy clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable ".[explorer]" --group dev
	@touch $(STAMP)

demo: setup
	@$(BIN)/servecast demo

test: setup
	@$(BIN)/python -m pytest

# A real Chromium (Debian: apt-get install chromium) opens the explorer. BROWSER=/path/to/chrome for another one.
BROWSER ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

test-browser: setup
	@test -n "$(BROWSER)" || { echo "no Chromium found: apt-get install chromium, or BROWSER=/path/to/chrome"; exit 1; }
	@SERVECAST_BROWSER="$(BROWSER)" $(BIN)/python -m pytest tests/browser

screenshots: setup
	@test -n "$(BROWSER)" || { echo "no Chromium found: apt-get install chromium, or BROWSER=/path/to/chrome"; exit 1; }
	@SERVECAST_BROWSER="$(BROWSER)" $(BIN)/python -m tests.browser

# The scheduler classes compared are those of 0.24.0, which the simulator follows; the server recorded is 0.32.0.
test-engine: setup $(ENGINE_STAMP)
	@SERVECAST_ENGINE_TESTS=1 VLLM_PYTHON=$(CURDIR)/$(ENGINE)/python-0.24.0 \
		$(BIN)/python -m pytest tests/engine --ignore tests/engine/test_live_server.py
	@SERVECAST_ENGINE_TESTS=1 VLLM_PYTHON=$(CURDIR)/$(ENGINE)/bin/python \
		$(BIN)/python -m pytest tests/engine/test_live_server.py

$(ENGINE_STAMP): tests/engine/install.sh
	@tests/engine/install.sh $(ENGINE) $(ENGINE_PYTHON)
	@touch $(ENGINE_STAMP)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/python -m tests.bench

# Exit code 2 is a miss: a report like any other.
validation: setup
	@grep -v '^#' validation/reports.txt | while IFS=: read -r name arguments; do \
		echo "$$name" >&2; \
		$(BIN)/servecast validate $$arguments --replications 20 --workers 2 --report validation/$$name \
			> /dev/null || test $$? -eq 2 || exit 1; \
	done

accuracy: setup
	@$(BIN)/servecast accuracy --reports validation --update README.md --keep profiles/validation.json > /dev/null
	@$(BIN)/servecast accuracy --reports validation --update docs/accuracy.md > /dev/null

clean:
	rm -rf $(VENV) $(ENGINE) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
