# Everything a developer runs. Needs Python >= 3.11 with venv and the package registry; makes its own .venv.
# PYTHON=… names the interpreter, PYTEST_ARGS=… goes to pytest.

BIN := .venv/bin
READY := .venv/.ready

# Where it is set, each of the hundreds of processes of a test run would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test faults hostile check format bench picture lock raise-floor clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## see it work, on an embedded PostgreSQL
	@$(BIN)/outbox demo

# `coverage run` rather than a pytest plugin: pytest loads our own plugin, and so the kernel, before any other could measure.
test: $(READY) ## the whole suite with branch coverage, held against coverage-floor.toml
	@sh tools/run_tests.sh $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage json --quiet
	@$(BIN)/python tools/coverage_floor.py

faults: $(READY) ## what was committed against what was done, while processes are killed; up to an hour
	@$(BIN)/python -m tests.faults

hostile: $(READY) ## what strangers send, ten times as much as `make test` sends; minutes
	@HYPOTHESIS_PROFILE=longer $(BIN)/pytest -o faulthandler_timeout=0 tests/hostile $(PYTEST_ARGS)

check: $(READY) ## format, style, types, architecture
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python tools/check_types.py
	@$(BIN)/lint-imports

format: $(READY) ## rewrite the code in the house's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## the cost of capture, as JSON
	@$(BIN)/outbox bench capture --json

picture: $(READY) ## take the picture of the dashboard that the README shows; needs a Chromium
	@$(BIN)/python -m tools.picture

lock: $(READY) ## take the newest versions of everything into requirements/*.txt
	@sh tools/lock.sh

raise-floor: $(READY) ## after `make test`: write the coverage reached into coverage-floor.toml
	@$(BIN)/python tools/coverage_floor.py --raise

clean: ## remove whatever make, tox and the tools have made
	rm -rf .venv .tox build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so a .venv that was interrupted half-way is repaired by the next run.
$(READY): pyproject.toml requirements/bootstrap.txt requirements/dev.txt tools/make_venv.sh
	@PYTHON='$(PYTHON)' sh tools/make_venv.sh .venv
