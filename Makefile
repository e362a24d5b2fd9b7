# Everything is installed inside the checkout: Python packages, Node and the CDK CLI in .venv/ and node_modules/.
# A stamp below .venv/stamps says what is done already; it is older than what it was made from when that changed.

PYTHON ?= python3
ENV ?=
BIN := .venv/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
STAMPS := .venv/stamps

# Bytecode is worth having: the functions and tools are started often.
unexport PYTHONDONTWRITEBYTECODE
# The operator's virtual environment, if one is active, is not ours.
unexport VIRTUAL_ENV
unexport PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: least-privilege fuzz audit-dependencies sbom help setup setup-dev demo up down test browser lint types layers registry synth package deploy destroy smoke-aws sim sim-mutations soak model faults drill bench docs docs-serve release-snapshot clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- tools ----------------------------------------------------------------------------------------------------------

setup: $(STAMPS)/thunder $(STAMPS)/embedded $(STAMPS)/node ## Install what running and deploying need, inside the checkout

setup-dev: setup $(STAMPS)/dev $(STAMPS)/docs

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH: install Python 3.11 or later" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version) is too old: Python 3.11 or later is needed (make PYTHON=/path/to/python3.12 …)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "==> creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/python: requirements.txt | $(STAMPS)/venv
	@echo "==> installing the CDK, the CLI and Node into .venv (the first time about 150 MB)"
	@$(PIP) install -r requirements.txt
	@touch $@

$(STAMPS)/thunder: pyproject.toml $(STAMPS)/python
	@echo "==> installing the command $(BIN)/thunder"
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/embedded: requirements-local.txt | $(STAMPS)/venv
	@echo "==> installing the embedded AWS into .venv/embedded"
	@$(PY) -m venv --without-pip .venv/embedded
	@$(PIP) --python .venv/embedded/bin/python install -r requirements-local.txt
	@touch $@

$(STAMPS)/node: package-lock.json $(STAMPS)/python
	@echo "==> installing the CDK command line into node_modules"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/npm ci --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(STAMPS)/docs: requirements-docs.txt $(STAMPS)/python
	@echo "==> installing what builds the documentation"
	@$(PIP) install --quiet -r requirements-docs.txt
	@touch $@

$(STAMPS)/dev: requirements-dev.txt $(STAMPS)/python
	@echo "==> installing the tools of make test"
	@$(PIP) install -r requirements-dev.txt
	@touch $@

# ---- what is deployed -----------------------------------------------------------------------------------------------

layers: build/layers/dependencies/requirements.txt ## Build the layer of third-party packages

build/layers/dependencies/requirements.txt: layers/dependencies/requirements.txt $(STAMPS)/python
	@echo "==> building the dependency layer"
	@$(PY) -m infra.dependencies

registry: setup ## Declare the task types of the handlers (ENV, default local)
	@$(BIN)/thunder registry build --env $(or $(ENV),local)

synth: setup layers registry ## Synthesise the stacks (ENV, default local) into cdk.out
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/node node_modules/aws-cdk/bin/cdk synth --quiet -c env=$(or $(ENV),local)

package: setup layers ## Build sdist and wheel into dist/
	@$(PY) -m infra.distribution

deploy: ## Deploy to the account of the current AWS credentials (ENV=dev|prod)
	@test -n "$(ENV)" || { echo "say which environment: make deploy ENV=dev" >&2; exit 2; }
	@$(MAKE) --no-print-directory setup layers registry ENV=$(ENV)
	@$(PY) -m thunder.deployment $(ENV)

destroy: ## Remove an environment that does not keep its data, its bucket's objects first (ENV=dev, YES=1 not to ask)
	@test -n "$(ENV)" || { echo "say which environment: make destroy ENV=dev" >&2; exit 2; }
	@$(MAKE) --no-print-directory setup layers registry ENV=$(ENV)
	@$(PY) -m thunder.destruction $(ENV) $(if $(YES),--yes)

smoke-aws: setup-dev layers ## Deploy to your account what no test here can prove, look, remove it (YES=1 not to ask; ENDPOINT=local here)
	@$(if $(filter local,$(ENDPOINT)),$(MAKE) --no-print-directory registry ENV=local,true)
	@$(PY) -m thunder.smoke $(if $(YES),--yes) $(if $(filter local,$(ENDPOINT)),--local) \
		$(if $(TTL_MINUTES),--ttl-minutes $(TTL_MINUTES))

# ---- on this machine ------------------------------------------------------------------------------------------------

demo: setup layers ## Deploy the real stack to an embedded AWS, run real tasks through it, and leave nothing running
	@$(MAKE) --no-print-directory registry ENV=local
	@trap '$(BIN)/thunder local down' EXIT; trap 'exit 130' INT TERM; \
		$(BIN)/thunder local up && $(PY) -m examples.demo_run

up: setup layers ## Start the embedded AWS and deploy the stack to it, and leave both up
	@$(MAKE) --no-print-directory registry ENV=local
	@$(BIN)/thunder local up

down: setup ## End what `make up` started
	@$(BIN)/thunder local down

# ---- checks ---------------------------------------------------------------------------------------------------------

test: setup-dev layers ## Every check and every test, end to end included
	@$(MAKE) --no-print-directory registry ENV=local
	@$(MAKE) --no-print-directory lint types
	@$(PY) -m pytest $(PYTEST_ARGS)

browser: ## Install the Chromium that the console is tested in (Debian, as root); without one those tests are skipped
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "==> installing Chromium"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null \
			|| echo "Chromium could not be installed: the console's tests in a browser will be skipped" >&2; \
	else echo "there is no Chromium, and only root can apt-get it: the console's tests in a browser will be skipped" >&2; fi

lint: setup-dev ## Style and module boundaries
	@echo "==> ruff, import-linter"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: setup-dev ## mypy, strict
	@echo "==> mypy"
	@$(BIN)/mypy

sim: setup-dev ## Simulate one seed: all the code, bad weather (SEED, LIVES); exits non-zero on a violation
	@$(PY) -m tests.simulation --seed $(or $(SEED),1) $(if $(LIVES),--lives $(LIVES))

sim-mutations: setup-dev ## Leave every rule of the protocol out once: the simulation must notice (SEEDS for each)
	@$(PY) -m tests.simulation --mutations $(if $(SEEDS),--seeds $(SEEDS))

model: setup-dev ## Check the model of the lease protocol exhaustively (without Spin: its smallest sizes)
	@$(PY) models/check.py --quick

soak: setup-dev ## Simulate a million lives, or as many as SECONDS allow (SEED, LIVES, PROCESSES; RESULTS: a file to go on)
	@$(PY) -m tests.simulation --soak --seed $(or $(SEED),1) --lives $(or $(LIVES),1000000) \
		--processes $(or $(PROCESSES),1) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(RESULTS),--results $(RESULTS))

faults: setup-dev layers ## Break one thing after another while tasks run, and write docs/faults.md (some minutes; FAULTS)
	@$(MAKE) --no-print-directory registry ENV=local
	@$(PY) -m drills.run_faults $(FAULTS)

drill: setup-dev layers ## Rehearse what an operator has to deal with (NAME, QUICK=1; without NAME: which there are)
	@$(MAKE) --no-print-directory registry ENV=local
	@$(PY) -m drills $(NAME) $(if $(QUICK),--quick) $(if $(TASKS),--tasks $(TASKS))

bench: setup-dev layers ## Measure, and write docs/performance.md
	@$(MAKE) --no-print-directory registry ENV=local
	@$(PY) -m bench $(BENCH)

docs: $(STAMPS)/docs ## Build the documentation site into build/site, without a network
	@PYTHONPATH=layers/thunderagent/python $(PY) -m docsite.diagrams
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

docs-serve: $(STAMPS)/docs ## Serve the documentation on http://127.0.0.1:8000, and anew at each change
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve --dev-addr 127.0.0.1:8000

release-snapshot: setup-dev layers ## Keep what later versions are tested against, below tests/released
	@$(MAKE) --no-print-directory registry ENV=dev
	@$(MAKE) --no-print-directory registry ENV=prod
	@$(PY) -m tests.support.releases

least-privilege: setup-dev layers ## Take every grant of the stack away once: a probe must notice (ONLY=part of a name; 20 minutes)
	@$(MAKE) --no-print-directory registry ENV=local
	@$(PY) -m tests.least_privilege $(if $(ONLY),--only "$(ONLY)")

fuzz: setup-dev layers ## Give garbage to every stream handler, SECONDS to each test (default 60)
	@$(MAKE) --no-print-directory registry ENV=local
	@FUZZ_SECONDS=$(or $(SECONDS),60) $(PY) -m pytest -q tests/functions/test_stream_fuzz.py

sbom: setup-dev ## Write what is installed and deployed as CycloneDX: build/sbom.json
	@$(PY) -m infra.bill_of_materials

audit-dependencies: setup-dev $(STAMPS)/audit ## Ask PyPI and the npm registry for known weaknesses of what is pinned
	@PATH="$(CURDIR)/$(BIN):$$PATH" PIP_AUDIT=.venv/audit/bin/pip-audit $(PY) -m infra.audit

$(STAMPS)/audit: requirements-audit.txt | $(STAMPS)/venv
	@echo "==> installing pip-audit into .venv/audit"
	@$(PYTHON) -m venv .venv/audit
	@.venv/audit/bin/python -m pip --disable-pip-version-check --quiet install -r requirements-audit.txt
	@touch $@

clean: ## Remove everything made or installed in the checkout
	@if [ -x $(BIN)/thunder ]; then $(BIN)/thunder local down; fi
	@rm -rf .venv node_modules build cdk.out .thunder
