# coattail: `make repro` runs the whole pipeline, `make test` runs the tests; both set themselves up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := true
# Where it is set, every stage and test would compile the libraries that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup repro status test bits check format docs hooks ui team-server bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv from requirements.lock (repeats do nothing)
	@PYTHON="$(PYTHON)" bash scripts/setup.sh

repro: setup ## Run every stage that is out of date, then show the leaderboard
	@echo "coattail: dvc repro (stages that are up to date are skipped)"
	@dvc repro
	@coattail leaderboard
	@echo
	@echo "Look closer:  coattail report --open   make ui (MLflow in the browser)   dvc plots show   coattail --help"

status: setup ## Say what `make repro` would run, edits of code and of your data included
	@coattail status

test: setup ## Run the tests
	@echo "coattail: pytest"
	@python -m pytest -n 2 --dist loadscope --no-loadscope-reorder --durations=10

bits: setup ## Compare the bytes of all stages with those on emulated processors (needs qemu-user)
	@python benchmarks/processors.py

check: setup ## Lint, format, types, spelling, and who may import whom
	ruff check .
	ruff format --check .
	mypy
	PYTHONPATH=src:. lint-imports
	git ls-files -z | xargs -0 codespell

format: setup ## Mend what ruff can mend
	ruff check --fix .
	ruff format .

docs: setup ## Write the pages that are made from the code (docs/reference, studies, architecture)
	@python scripts/architecture.py
	@python scripts/reference.py
	@coattail study write

hooks: setup ## Check what you commit, at every commit (pre-commit)
	@pre-commit install

ui: setup ## Open the MLflow UI on http://127.0.0.1:5000 (PORT=...)
	@coattail experiment sync
	@echo "coattail: MLflow on http://127.0.0.1:$${PORT:-5000}  (stop with Ctrl-C)"
	@MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow server --host 127.0.0.1 --port $${PORT:-5000} --backend-store-uri "$${MLFLOW_TRACKING_URI:-sqlite:///$(CURDIR)/mlflow.db}"

team-server: setup ## Start MLflow for a team, as conf/team-server.yaml says (CONFIG=...; docs/how-to/team.md)
	@coattail team start --config "$${CONFIG:-conf/team-server.yaml}"

bench: setup ## Run the benchmarks that need no peer (see benchmarks/README.md)
	@for file in read_xmc metrics demo_baseline; do echo "== benchmarks/$$file.py"; python benchmarks/$$file.py || exit 1; done

clean: ## Remove the environment and the caches of tools (never data or results)
	rm -rf .venv .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src stages tests -name __pycache__ -type d -prune -exec rm -rf {} +
