# Each target sets up what it needs. Python 3.11+, make and a C compiler are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NODE_DIR ?= /tmp/raybus-node

.PHONY: help setup demo demo-down test test-kube test-docker lint bench night simulate test-simulation simulate-night crds images deploy-files manifests docs clean test-units test-integration test-e2e test-tools e2e-kube bench-install

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Raybus needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[local,dev]'
	@touch $@

setup: $(READY) ## the virtual environment with everything in it

demo: $(READY) ## a RayJob on real Ray, on this machine
	$(BIN)/raybus run examples/rayjob.yaml --replace --until-clean
	$(BIN)/raybus get

demo-down: $(READY) ## stop what the demo started
	$(BIN)/raybus down

lint: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two at a time, a file in one process: most tests wait for something.
PYTEST := $(BIN)/pytest
TWO := -n 2 --dist loadfile
HERE := -m 'not night and not realkube and not docker and not node'

test: lint test-units test-integration test-e2e ## all tests that need no Kubernetes: units, contracts, localkube, real Ray

test-units: $(READY)
	$(PYTEST) $(TWO) $(HERE) tests/unit tests/contracts tests/architecture

test-integration: $(READY) test-tools
	$(PYTEST) $(TWO) $(HERE) tests/integration

test-e2e: $(READY)
	$(PYTEST) $(TWO) $(HERE) tests/e2e

test-tools: # what tests use and no Python package has; those that need what cannot be had skip
	@tests/tools/fetch

test-kube: $(READY) test-tools ## the integration suite on a real API server: KUBECONFIG, or one started here where the tool is there
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/with-real-kube $(PYTEST) -m '(kube or realkube) and not night and not ray' tests/integration tests/golden

test-docker: $(READY) ## the image, and the services in containers: DOCKER_HOST's engine, or one started here where the tool is there
	tests/with-docker $(PYTEST) -m 'docker and not night' tests/docker

e2e-kube: $(READY) test-tools ## the chart, and Ray in real pods: KUBECONFIG, or a cluster with a node started here where the tools are there
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/with-node-kube $(NODE_DIR) $(PYTEST) -m 'node and not night' tests/e2e_kube

bench: $(READY) ## the benchmarks, as ratios within one run
	$(BIN)/python benchmarks/run.py

bench-install: $(READY) test-tools ## what an installation costs at rest, on a cluster as for e2e-kube; writes benchmarks/results
	tests/with-node-kube $(NODE_DIR) $(BIN)/python benchmarks/install.py

night: $(READY) test-tools ## what is too long for CI, NIGHT="--minutes 60 --areas e2e"; goes on where it stopped; writes tests/night/results
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/night/run.py $(NIGHT)

# SEED and SCENARIO, or SCHEDULE, show one run in full detail.
SCENARIO ?= core
simulate: $(READY) ## the simulator: its share of CI, or one run in detail with SEED=n SCENARIO=name or SCHEDULE='{...}'
ifdef SCHEDULE
	cd tests && ../$(BIN)/python -m simulation.sim run --schedule '$(SCHEDULE)'
else ifdef SEED
	cd tests && ../$(BIN)/python -m simulation.sim run --seed $(SEED) --scenario $(SCENARIO)
else
	cd tests && ../$(BIN)/python -m simulation.sim ci
endif

test-simulation: $(READY) ## that the simulator repeats itself; make night also plants defects that it must catch
	$(PYTEST) -n 2 $(HERE) tests/simulation

simulate-night: $(READY) ## the simulator for long: 150,000 schedules, goes on where it was stopped
	cd tests && ../$(BIN)/python -m simulation.sim night

crds: $(READY) ## write deploy/crds again from the types
	$(BIN)/python -m raybus.api.crds deploy/crds

images: ## raybus/raybus:<version>, with DOCKER_HOST's engine; DOCKER_BUILD_FLAGS='--network host' where builds have no network of their own
	deploy/images/build

deploy-files: $(READY) ## write again what the chart takes from the code: rights in Kubernetes and in NATS
	$(BIN)/python deploy/generate.py

manifests: $(READY) ## write deploy/manifests again from the chart; needs Helm or Go
	$(BIN)/python deploy/manifests.py "$$(tests/tools/helm)"

docs: $(READY) ## write docs/reference again from the code
	$(BIN)/python docs/generate.py

clean: ## forget the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
