# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   ?=

.PHONY: run test demo check unit acceptance kills bench proto tools clean help

run: $(VENV)/.runtime  ## Start a broker on ./levada-data (DATA=… for another directory; LEVADA_KAFKA__PORT=…, LEVADA_GRPC__PORT=…, LEVADA_HTTP__PORT=… for other ports)
	@$(BIN)/levada up $(if $(DATA),--data $(DATA))

test: $(VENV)/.dev tools check  ## Set everything up and run the whole test suite
	$(BIN)/pytest -n 3 --dist loadfile

demo: $(VENV)/.spark  ## A broker, a stream of orders and a Spark pipeline over it, live in this terminal
	@$(BIN)/python scripts/tools.py --java
	@$(BIN)/levada demo

check: $(VENV)/.dev  ## Lint, formatting, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.dev  ## Only the tests that need nothing but Python
	$(BIN)/pytest tests/unit tests/contract tests/integration

acceptance: $(VENV)/.dev tools  ## Only the tests with clients nobody here wrote
	$(BIN)/pytest tests/acceptance

kills: $(VENV)/.dev tools  ## Only the tests that kill drivers, executors, brokers and runners of Spark, in 20 rounds each instead of 2
	LEVADA_KILL_ROUNDS=$${LEVADA_KILL_ROUNDS:-20} $(BIN)/pytest tests/acceptance/spark -k kill

bench: $(VENV)/.dev tools  ## Levada beside Apache Kafka, NATS, Redis and Spark's own connector; writes bench/RESULTS.md
	$(BIN)/pip install --quiet --group bench
	$(BIN)/python scripts/tools.py --bench
	$(BIN)/python bench/compare_kafka.py
	$(BIN)/python bench/native.py
	$(BIN)/python bench/spark.py

tools: $(VENV)/.dev  ## A JDK, kcat, Node, and the libraries of foreign clients, for the tests
	@$(BIN)/python scripts/tools.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Levada needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.spark: pyproject.toml | $(VENV)/bin/python
	@echo "Setting up Levada with Spark: some 500 MB are downloaded, which takes a minute or more …"
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[spark]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[spark]' --group dev
	@touch $@ $(VENV)/.runtime $(VENV)/.spark

proto: $(VENV)/.dev  ## Generate the code of src/levada/v1 from its .proto files
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src --grpc_python_out=src src/levada/v1/*.proto

clean:  ## Remove the virtual environment and caches; data directories stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

help:
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
