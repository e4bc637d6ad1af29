# The commands of this project. `make` alone lists them.
#
# Everything happens in .venv, made on first use with the newest Python from 3.11 on that is found (or PYTHON=…).
# A stamp file per kind of install remembers that it is done; pip is called again only when pyproject.toml has
# changed, so a second `make run` starts at once.

VENV := .venv
BIN := $(VENV)/bin
VENV_MADE := $(VENV)/.made
RUNTIME_INSTALLED := $(VENV)/.installed-runtime
DEV_INSTALLED := $(VENV)/.installed-dev

# The tests' own workers. Four suit two cores, since many tests wait; `make test WORKERS=0` runs in one process, for a debugger.
WORKERS ?= 4
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run install dev test test-all check coverage bench sim chaos clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+: .*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

run: $(RUNTIME_INSTALLED) ## start the server on http://127.0.0.1:8283, data in ./data
	@exec env HOLDFAST_DATA_DIR="$${HOLDFAST_DATA_DIR:-$(CURDIR)/data}" $(BIN)/holdfast serve

install: $(RUNTIME_INSTALLED) ## make .venv and install what the server needs

dev: $(DEV_INSTALLED) ## install what tests and checks need as well

test: check ## all checks, then all tests, on SQLite and on a real Postgres
	$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder $(PYTEST_ARGS)

test-all: export HOLDFAST_TEST_ALL = 1
test-all: test ## the same, with databases of full size where `make test` takes a sample

check: $(DEV_INSTALLED) ## format, lint, types and the import rules of packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(DEV_INSTALLED) ## all tests under branch coverage; fails below the floor in pyproject.toml
	$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder --cov --cov-report=term $(PYTEST_ARGS)

bench: $(DEV_INSTALLED) ## measure latency, throughput, memory and size, side by side with a bare proxy; BASE=… with an older checkout too
	$(BIN)/python -m bench $(if $(BASE),--base $(BASE))

sim: $(DEV_INSTALLED) ## simulate histories with crashes; SEED=… prints one step by step, HISTORIES=… plays many
	$(BIN)/python -m simulator $(if $(SEED),--seed $(SEED)) $(if $(HISTORIES),--histories $(HISTORIES)) --workers 2

chaos: $(DEV_INSTALLED) ## kill real servers under load; KILLS=… on each database, DATABASE=sqlite or postgres, SEED=…, PEOPLE=…, STORMS=…
	$(BIN)/python -m chaos $(if $(KILLS),--kills $(KILLS)) $(if $(DATABASE),--database $(DATABASE)) $(if $(SEED),--seed $(SEED)) $(if $(PEOPLE),--people $(PEOPLE)) $(if $(STORMS),--storms $(STORMS))

clean: ## remove .venv and every cache; ./data stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# -- below: how .venv comes to be ---------------------------------------------------------------------------------

# A .venv that someone made by hand is kept.
$(VENV_MADE):
	@new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if $(BIN)/python -c "$$new_enough" 2>/dev/null; then touch $@; exit 0; fi; \
	for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3 python; do \
	    "$$python" -c "$$new_enough" 2>/dev/null || continue; \
	    echo "Making $(VENV) with $$("$$python" --version)."; \
	    if "$$python" -m venv --clear $(VENV); then touch $@; exit 0; fi; \
	    rm -rf $(VENV); \
	    echo "$$python cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; \
	    exit 1; \
	done; \
	echo "Holdfast needs Python 3.11 or newer, and found none. Install it, or name it: make PYTHON=/path/to/python" >&2; \
	exit 1

$(RUNTIME_INSTALLED): $(VENV_MADE) pyproject.toml
	@echo "Installing Holdfast into $(VENV)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Dependency groups need pip 25.1, and the one that comes with Python 3.11 is older.
$(DEV_INSTALLED): $(VENV_MADE) pyproject.toml
	@echo "Installing Holdfast and its development tools into $(VENV)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@ $(RUNTIME_INSTALLED)
