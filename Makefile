# Everything happens in .venv; python3 (3.11 or newer, with venv) and make are all that a machine needs.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Wheels only: building from source would fetch the tools for that unpinned.
HASHED := $(BIN)/python -m pip install --quiet --require-hashes --only-binary :all:
# For the two cores of a small machine. Each process collects all tests; one more is worth that where many tests wait for a process.
test: JOBS ?= 2
test-all test-rest fuzz: JOBS ?= 3
# Development and CI install what requirements/*.txt pin, by hash; LOCKED=no takes what pyproject.toml allows and the index has.
LOCKED ?= yes

# Many tests start relink, which would be compiled anew each time where the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE


PYTEST = $(BIN)/pytest -n $(JOBS) --dist worksteal
STAGE := @scripts/stage

.PHONY: ready test test-all test-rest check demo docs site fuzz bench bench-check format lock clean

# What a change has to pass while you work: no network, no Nix, no browser, less than 200 s of processor time.
test: check
	$(STAGE) pytest $(PYTEST)

# Every test but the long generated ones, and more generated inputs. Nix, chromium and the package indexes where they can be had.
test-all: check
	$(STAGE) pytest-all env RELINK_TESTS=all $(PYTEST) -m "not fuzz"

# What test-all has and test has not: the two are every test, each once but for those with generated inputs.
test-rest: $(READY)
	$(STAGE) pytest-rest env RELINK_TESTS=rest $(PYTEST) -m "not fuzz"

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

# The documentation as a site in .cache/site; warnings and broken links are errors.
site: $(READY)
	$(BIN)/python scripts/make_site.py

# More than a million generated inputs, in about an hour and a half on two cores; each target's number is in CONTRIBUTING.md.
fuzz: $(READY)
	-$(HASHED) --requirement requirements/fuzz.txt
	RELINK_TESTS=fuzz $(PYTEST) -m "fuzz or hypothesis" tests/fuzz tests/unit

# The table and the plot of docs/benchmarks.md, from all that can be measured here; docs/benchmarks.md says what that needs.
bench: $(READY)
	$(if $(filter no,$(LOCKED)),$(BIN)/python -m pip install --quiet --group bench,$(HASHED) --requirement requirements/bench.txt)
	$(BIN)/python -m benchmarks

# Small benchmarks, none of which may take more than the best commit, which benchmarks/record.toml names.
bench-check: $(READY)
	$(STAGE) bench-check $(BIN)/python -m benchmarks.check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# For Python 3.11 and newer, all platforms, whatever index is configured here: neither its address nor a path gets into the files.
lock: $(READY)
	for group in dev compiler bench fuzz; do \
		$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --upgrade \
			--no-emit-index-url --no-annotate --no-header --group $$group --output-file requirements/$$group.txt \
			$$(test $$group = dev && echo pyproject.toml) $$(test $$group = bench && echo --constraint requirements/dev.txt) && \
		sed -i "1i # Made by \`make lock\`: the group $$group of pyproject.toml." requirements/$$group.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml requirements/dev.txt requirements/compiler.txt
	@test -n "$(PYTHON)" || { echo "relink needs Python 3.11 or newer; install it, or name one: make PYTHON=/path/to/python3"; exit 2; }
	LOCKED=$(LOCKED) $(PYTHON) scripts/set_up.py
