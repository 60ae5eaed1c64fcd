# Two commands matter: `make demo` and `make test`. Each sets up .venv first, from nothing but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most tests keep one core busy.
TEST_PROCESSES ?= 2

.PHONY: help demo test test-triton test-distributed test-hosts bench lint docs setup wheel clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup  ## Train on the bundled graph, evaluate, predict; one to two minutes on two cores
	rm -rf runs/demo
	$(BIN)/eans train wordnet-core --out runs/demo
	$(BIN)/eans predict runs/demo --head connecticut.n.01 --relation part_holonym -k 5 --known mark

test: setup lint  ## Everything that must hold for a change to land
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

test-triton: setup  ## The GPU kernels, run by Triton's interpreter where there is no GPU; installs Triton (640 MB)
	$(BIN)/python -c "import triton" 2> /dev/null || $(BIN)/python -m pip install -q triton==3.6.0
	$(BIN)/python -m pytest tests/kernels

test-distributed: setup  ## Ranks that are killed, stopped or cannot write, many times over; about ten minutes
	$(BIN)/python -m pytest -n 0 tests/distributed_faults.py

test-hosts: setup  ## Two hosts as network namespaces, cut off and killed; as root, with iproute2; about four minutes
	$(BIN)/python -m pytest -n 0 tests/distributed_hosts.py

bench: $(VENV)/.bench  ## This library and PyKEEN on this CPU, side by side; about 15 minutes
	$(BIN)/python -m benchmarks.cpu

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[bench]"
	touch $@

lint: setup  ## Style and types: ruff, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## The documentation as a site in site/; a broken link is an error
	$(BIN)/python -m scripts.reference_pages
	$(BIN)/mkdocs build --strict

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[docs]"
	touch $@

setup: $(VENV)/.installed  ## .venv, with exact versions of everything

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev]"
	touch $@

wheel: setup  ## The wheel, in dist/
	$(BIN)/python -m build --wheel

clean:  ## Remove what the other targets made
	rm -rf $(VENV) build dist site src/*.egg-info
