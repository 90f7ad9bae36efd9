# The commands that people and CI type. `make run` needs only Python 3.11+.

PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8080
JOBS ?= 4
BIN := $(VENV)/bin

# The tests start hundreds of processes, which would each compile the packages that they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-http2 test-convert test-convert-torch check check-links e2e fmt proto reference clean

help: ## Print what make can do
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The tests use an S3 server, which has an environment of its own. After this `make test` asks no registry.
setup: $(VENV)/.setup ## Install what the tests need into .venv and .e2e
	@$(BIN)/python -c 'from tests.e2e.tools import environment; environment("swift")'

$(VENV)/.lean: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dragoman needs Python 3.11+, and $(PYTHON) is %d.%d: try make PYTHON=python3.13" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv \
	  && $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[server,onnx]' \
	  || $(BIN)/python -m pip install --quiet --editable '.[server,onnx]'
	@touch $@

$(VENV)/.setup: $(VENV)/.lean
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[server,onnx,dev]' \
	  || $(BIN)/python -m pip install --quiet --editable '.[server,onnx,dev]'
	@touch $@

run: $(VENV)/.lean ## Serve models/ on 127.0.0.1:8080
	$(BIN)/dragoman serve --host $(HOST) --port $(PORT) --repository models

# The tests of a file share servers, so they run in one process. A third of the time they wait for servers. A process that
# crashes ends the run: with another in its place pytest-xdist would wait for ever.
SPREAD := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: setup ## Run the tests
	$(BIN)/python -m pytest $(SPREAD)

# Tracing doubles the CPU time of the tests, so coverage is that of the tests of single modules and of abuse, which must
# reach every line without the long tests of whole protocols. It is valid until a file is newer.
TRACED := tests/core tests/handler tests/abuse

.coverage: $(shell find core handler models proto tests -type f -not -name '*.pyc') pyproject.toml README.md template.yaml Makefile
	@rm -f $@
	$(BIN)/python -m pytest $(TRACED) $(SPREAD) --cov --cov-report= || { rm -f $@; exit 1; }

check: setup ## Check format, lint, types, layers and coverage
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory .coverage
	$(BIN)/coverage report --include='core/*' --fail-under=100
	$(BIN)/coverage report --include='handler/*' --omit='handler/commands/convert/*' --fail-under=95

# TensorFlow is 1.4 GB and not in the usual environment: `dragoman convert` has an environment of its own.
CONVERT_VENV ?= .venv-convert
CONVERT_BIN := $(CONVERT_VENV)/bin
CONVERT_NEEDS := '.[convert,onnx,server,grpc]' coverage hypothesis pytest pytest-timeout

# The other libraries have one that is smaller (0.9 GB). XGBoost's own package brings CUDA along, xgboost-cpu does not.
LIBRARIES_VENV ?= .venv-libraries
LIBRARIES_BIN := $(LIBRARIES_VENV)/bin
LIBRARIES_NEEDS := '.[convert-sklearn,convert-lightgbm,convert-catboost,onnx,server,grpc]' xgboost-cpu coverage hypothesis pytest pytest-timeout

$(LIBRARIES_VENV)/.setup: pyproject.toml $(VENV)/.setup
	$(BIN)/python -m venv $(LIBRARIES_VENV)
	$(BIN)/uv pip install --quiet --python $(LIBRARIES_BIN)/python --editable $(LIBRARIES_NEEDS) \
	  || $(LIBRARIES_BIN)/python -m pip install --quiet --editable $(LIBRARIES_NEEDS)
	@touch $@

$(CONVERT_VENV)/.setup: pyproject.toml $(VENV)/.setup
	$(BIN)/python -m venv $(CONVERT_VENV)
	$(BIN)/uv pip install --quiet --python $(CONVERT_BIN)/python --editable $(CONVERT_NEEDS) \
	  || $(CONVERT_BIN)/python -m pip install --quiet --editable $(CONVERT_NEEDS)
	@touch $@

MEASURED := coverage run --data-file=.coverage-convert --source=handler/commands/convert
test-convert: $(CONVERT_VENV)/.setup $(LIBRARIES_VENV)/.setup ## Run the tests of `dragoman convert`, with the libraries it reads
	$(CONVERT_BIN)/$(MEASURED) -m pytest tests/convert --ignore=tests/convert/libraries --ignore=tests/convert/torch
	$(LIBRARIES_BIN)/$(MEASURED) -m pytest tests/convert/libraries
	$(CONVERT_BIN)/coverage combine --quiet --data-file=.coverage-convert
	$(CONVERT_BIN)/coverage report --data-file=.coverage-convert --omit='*/sources/torch.py,*/sources/huggingface.py,*/child.py' --fail-under=95

# PyTorch's package on PyPI brings CUDA along: 5.5 GB on the disk, of which nothing is used.
TORCH_VENV ?= .venv-torch
TORCH_NEEDS := '.[convert-torch,convert-huggingface,onnx,server,grpc,text]' hypothesis pytest pytest-timeout

$(TORCH_VENV)/.setup: pyproject.toml $(VENV)/.setup
	$(BIN)/python -m venv $(TORCH_VENV)
	$(BIN)/uv pip install --quiet --python $(TORCH_VENV)/bin/python --editable $(TORCH_NEEDS) \
	  || $(TORCH_VENV)/bin/python -m pip install --quiet --editable $(TORCH_NEEDS)
	@touch $@

test-convert-torch: $(TORCH_VENV)/.setup ## Run the tests of `dragoman convert` that need PyTorch (5.5 GB)
	$(TORCH_VENV)/bin/python -m pytest tests/convert/torch

test-http2: setup ## Run the tests of gRPC over the port of HTTP
	TEST_HTTP2=1 $(BIN)/python -m pytest tests/protocols/grpc tests/protocols/test_clients.py -n 2 --dist loadfile

# The tests on real parts: Lambda's runtime, an S3 server, sam build and sam local start-api. The container engine needs root.
# Those of the engine run in one process (tests/e2e/conftest.py), the others beside it. Half of the time they wait.
E2E_SPREAD := --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
e2e: setup ## Run the tests on Lambda's runtime, sam local and real S3 servers
	$(BIN)/python -m pytest tests/e2e $(E2E_SPREAD) -p no:randomly --timeout=600 -o faulthandler_timeout=900

# What core/schema has of proto/: descriptor sets, which its modules load, and the types of their messages for mypy.
# The schema that only `dragoman convert` reads stands beside it, and leaves the function's artifact with it. Triton's stands
# with the settings.
SCHEMAS := $(notdir $(basename $(wildcard proto/*.proto)))
folder = $(if $(filter model_server_config,$(1)),handler/commands/convert,$(if $(filter triton%,$(1)),handler/settings/triton,core/schema))
schema = $(folder)/$(1)

proto: setup ## Make core/schema of proto/ again
	mkdir -p build/proto
	$(foreach name,$(SCHEMAS),$(BIN)/python -m grpc_tools.protoc --proto_path=proto --pyi_out=build/proto \
	  --descriptor_set_out=$(call schema,$(name)).binpb $(name).proto && mv build/proto/$(name)_pb2.pyi $(call schema,$(name)).pyi &&) true

check-links: setup ## Ask for every link of the documents that leads out
	$(BIN)/python -m tests.support.links

reference: setup ## Make the tables of settings and routes in docs/ again
	$(BIN)/python -m tests.support.reference

fmt: setup ## Format the code
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

clean: ## Remove everything that make has made
	rm -rf $(VENV) $(CONVERT_VENV) $(LIBRARIES_VENV) $(TORCH_VENV) .aws-sam .e2e build *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find core handler tests -name __pycache__ -prune -exec rm -rf {} +

# The function's artifact: its wheel and requirements are made of this checkout, and the rest is as `dragoman init --aws` has it.
# Servers that verify signatures need "onnx signing".
EXTRAS ?= onnx
# boto3 is in the runtime already: 33 MB less in the artifact. The command line is not in it.
NEEDED = import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(*(r for r in sum((p["optional-dependencies"][e] for e in "$(EXTRAS)".split()), p["dependencies"]) if not r.startswith(("boto3", "click", "rich"))), sep="\n")
WHEELS = $(ARTIFACTS_DIR)/wheel
REQUIREMENTS = $(ARTIFACTS_DIR)/requirements.txt

include handler/commands/init/files/aws/function.mk

function-parts:
	rm -rf build # setuptools keeps modules there that have left the tree since
	$(PIP) wheel --no-deps --wheel-dir "$(WHEELS)" .
	$(RUNTIME_PYTHON) -c '$(NEEDED)' > "$(REQUIREMENTS)"
