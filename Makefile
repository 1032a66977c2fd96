# make demo: the comparison on built-in data.  make test: everything CI checks.
# Needs Python 3.11 or later and pip; everything is installed into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/installed
	$(BIN)/llmsim compare hgx-h200-8 gb300-nvl72 --out out/demo --force

test: .venv/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/tools: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf .venv out build dist
