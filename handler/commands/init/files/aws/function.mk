# The function's artifact. `sam build` calls this with ARTIFACTS_DIR, but without the template's architecture; for Graviton:
#   ARCHITECTURE=arm64 sam build
# Only wheels are installed, so any machine can build for either; but .pyc files need the runtime's own Python version.

.PHONY: runtime-python function-checks function-parts build-InferenceFunction

# Dragoman's own wheel, and what else the function needs.
WHEELS ?= wheels
REQUIREMENTS ?= requirements.txt
RUNTIME := 3.13
ARCHITECTURE ?= x86_64
WHEEL_ARCH = $(ARCHITECTURE:arm64=aarch64)
GLIBC := 2_34 2_28 2_27 2_26 2_24 2_17
PLATFORMS = $(GLIBC:%=--platform manylinux_%_$(WHEEL_ARCH)) --platform manylinux2014_$(WHEEL_ARCH)
# The search runs once, and only for a build. It runs each candidate: a pyenv shim can be on the PATH and refuse to run.
CANDIDATES = python$(RUNTIME) python3 $(wildcard $(shell pyenv root 2>/dev/null)/versions/$(RUNTIME).*/bin/python)
TRIAL := import pip, sys; "%d.%d" % sys.version_info[:2] == "$(RUNTIME)" and print(sys.executable)
RUNTIME_PYTHON ?= $(eval RUNTIME_PYTHON := $(firstword $(foreach python,$(CANDIDATES),$(shell $(python) -c '$(TRIAL)' 2>/dev/null))))$(RUNTIME_PYTHON)
PIP = $(RUNTIME_PYTHON) -m pip --quiet --quiet --disable-pip-version-check --no-input
PRUNED := bin requirements.txt wheel handler/commands $(addprefix onnxruntime/,datasets quantization tools transformers)
UNUSED := a c cpp h pxd pyi pyx

runtime-python:
	@echo $(RUNTIME_PYTHON)

function-checks:
	$(if $(ARTIFACTS_DIR),,$(error ARTIFACTS_DIR is not set: run `sam build`, or name a folder))
	$(if $(filter x86_64 arm64,$(ARCHITECTURE)),,$(error ARCHITECTURE is $(ARCHITECTURE), expected x86_64 or arm64))
	$(if $(RUNTIME_PYTHON),,$(error no Python $(RUNTIME) with pip was found: install it, or name it with RUNTIME_PYTHON=...))

# Where the wheel and the requirements do not lie ready, the Makefile that includes this one makes them here.
function-parts: function-checks

build-InferenceFunction: function-parts
	$(PIP) install --target "$(ARTIFACTS_DIR)" --no-compile --only-binary=:all: --implementation cp --python-version $(RUNTIME) $(PLATFORMS) \
	  --requirement "$(REQUIREMENTS)"
	$(PIP) install --target "$(ARTIFACTS_DIR)" --no-compile --no-deps "$(WHEELS)"/*.whl
	cd "$(ARTIFACTS_DIR)" && rm -rf $(PRUNED)
	cd "$(ARTIFACTS_DIR)" && find . -type d \( -name test -o -name tests \) -prune -exec rm -rf {} +
	cd "$(ARTIFACTS_DIR)" && find . -type f \( $(UNUSED:%=-name '*.%' -o) -name py.typed \) -delete
	# Unchecked, because /var/task is read-only, and the sources' times there are not those of this machine.
	$(RUNTIME_PYTHON) -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$(ARTIFACTS_DIR)" -p /var/task "$(ARTIFACTS_DIR)"
	cd "$(ARTIFACTS_DIR)" && $(RUNTIME_PYTHON) -m handler.edge.runtime.bundling
