# `make demo` on a fresh machine is all that is needed: Python 3.11 or later, and make.
# `make demo ARGS=--no-serve` ends after the job. Every path is relative, so the checkout may lie anywhere.

PYTHON ?= python3
ARGS ?=
TEST_DATA_DIR ?= var/test

# Compiling all modules and rewriting all assertions takes longer than reading what the last process compiled.
unexport PYTHONDONTWRITEBYTECODE

RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# A site for others behind a TLS proxy, as docs/deploy/evalsite.env.example has it.
PRODUCTION := EVALSITE_ALLOWED_HOSTS=evalsite.lab.example EVALSITE_HTTPS=1
CODE := evalsite datasets_app runs_app grading_app benchmarks tests manage.py client/evalsite_client

.PHONY: help install install-dev demo test test-all faults campaign fuzz lint dist pictures
.DEFAULT_GOAL := help

help:
	@echo 'make install               a venv in .venv, from the hashed lock'
	@echo 'make demo                  the whole site with the sample data; ARGS=--no-serve ends after the job'
	@echo 'make test                  the tests that every change runs; ARGS go to pytest'
	@echo 'make test-all              all tests: browsers, killed processes, faults and the fuzzer too'
	@echo 'make fuzz                  hostile requests to every page and form; ARGS="--fuzz-requests 20000 --fuzz-seed 7"'
	@echo 'make lint                  style, types, layers, templates, migrations, settings'
	@echo 'make pictures              the pictures of docs/, made again by the browser tests'
	@echo 'make dist                  the sdist and the wheel, in dist/'

install: .venv/installed
install-dev: .venv/installed-dev

.venv/bin/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'Python 3.11 or later is needed. Name it: make install PYTHON=python3.12 (on Debian and Ubuntu: apt-get install python3)' >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot make a venv. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv

# The stamps make a second time quick. pip would say nothing while it downloads for minutes, if it were quieter.
.venv/installed: requirements.lock | .venv/bin/python
	$(RUN) -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock
	@touch .venv/installed

.venv/installed-dev: requirements-dev.lock | .venv/bin/python
	$(RUN) -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements-dev.lock
	@touch .venv/installed .venv/installed-dev

demo: install
	@$(RUN) manage.py demo $(ARGS)

# What every change runs; then everything: browsers, killed processes, faults and the fuzzer too.
test: install-dev
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(PYTEST) -m "not slow" $(ARGS)

test-all: install-dev
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(PYTEST) $(ARGS)

lint: install-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy $(CODE)
	.venv/bin/lint-imports
	find templates -name '*.html' -exec .venv/bin/djade --check {} +
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(RUN) manage.py makemigrations --check
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(RUN) manage.py check --fail-level WARNING
	NO_MKDOCS_2_WARNING=1 EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" .venv/bin/mkdocs build --strict --quiet
	env -u EVALSITE_DEBUG -u DATABASE_URL $(PRODUCTION) EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" \
		EVALSITE_SECRET_KEY="$$($(RUN) -c 'import secrets; print(secrets.token_urlsafe(48))')" \
		$(RUN) manage.py check --deploy --fail-level WARNING

# The locked build tools make both; the wheel is built from the sdist.
dist: install-dev
	$(RUN) -m build --no-isolation

# The pictures of the documents, from real pages of a real site.
PICTURED := first_result or preview_follows or rubric_is_written or every_rating_page or views_look_right
pictures: install-dev
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(RUN) -m pytest tests/system/browser -k "$(PICTURED)" --pictures $(ARGS)

# The attacks alone. A campaign strikes real runs in the middle, fault after fault, and prints what each one cost.
faults: install-dev
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(RUN) -m pytest tests/system/faults $(ARGS)

campaign: install-dev
	$(RUN) -m tests.system.faults.campaign $(ARGS)

# Hostile parameters, forms and files, in an order that follows from a seed: ARGS="--fuzz-requests 20000 --fuzz-seed 7".
fuzz: install-dev
	EVALSITE_DATA_DIR="$(TEST_DATA_DIR)" $(RUN) -m pytest tests/system/fuzz -s --fuzz-requests 5000 $(ARGS)
