# Requires python3 (3.11 or newer), pip and make. The environment is created without pip from the venv package,
# because a bare Debian does not have it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test docs clean

demo: .venv/ready
	$(BIN)/messi demo

test: .venv/ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

docs: .venv/ready-dev
	$(BIN)/mkdocs build --strict
	@echo "site    site/index.html"

.venv/ready: pyproject.toml
	$(PYTHON) -m venv --without-pip .venv
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --editable .
	touch $@

.venv/ready-dev: pyproject.toml
	$(PYTHON) -m venv --without-pip .venv
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --editable '.[dev]'
	touch .venv/ready $@

clean:
	rm -rf .venv site dist
