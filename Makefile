# Everything happens in .venv; python3 (3.11 or newer, with venv) and make are all that a machine needs.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

# Many tests start relink, which would be compiled anew each time where the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal
STAGE := @scripts/stage
APART := slow or network or real or nix or browser or examples or fuzz

.PHONY: ready test test-all check demo docs fuzz bench format clean

# What a change has to pass while you work: no network, no Nix, no browser, under two minutes on two cores.
test: check
	$(STAGE) pytest $(PYTEST) -m "not ($(APART))"

# Every test but the long generated ones, and more generated inputs. Nix, chromium and the package indexes where they can be had.
test-all: check
	$(STAGE) pytest-all env RELINK_TESTS=all $(PYTEST) -m "not fuzz"

check: $(READY)
	$(STAGE) ruff $(BIN)/ruff check .
	$(STAGE) format $(BIN)/ruff format --check .
	$(STAGE) mypy $(BIN)/mypy
	$(STAGE) layers $(BIN)/lint-imports --no-cache

# Set up .venv and nothing else.
ready: $(READY)

demo: $(READY)
	$(BIN)/python examples/demo/demo.py

docs: $(READY)
	$(BIN)/python scripts/make_docs.py

fuzz: $(READY)
	RELINK_TESTS=fuzz $(PYTEST) -m "fuzz or hypothesis" tests/fuzz tests/unit

bench: $(READY)
	$(BIN)/python -m benchmarks

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A C compiler is needed by the tests and the demo: cc where there is one, else the one in the ziglang package.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "relink needs Python 3.11 or newer; install it, or name one: make PYTHON=/path/to/python3"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	command -v cc >/dev/null || $(BIN)/python -m pip install --quiet ziglang
	touch $@
