# Everything happens in .venv; python3 (3.11 or newer, with venv) and make are all that a machine needs.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

.PHONY: test check demo docs fuzz bench format clean

test: check
	$(BIN)/pytest -n $(JOBS) --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

demo: $(READY)
	$(BIN)/python examples/demo/demo.py

docs: $(READY)
	$(BIN)/python scripts/make_docs.py

fuzz: $(READY)
	$(BIN)/pytest -m fuzz -n $(JOBS) --dist worksteal tests/fuzz

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
