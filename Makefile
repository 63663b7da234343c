# Every command does its own set-up (system packages, .venv, build) and is quick the second time.
# Stamps under build/stamps/ note what is done; they are renewed when their prerequisites change.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The folder whose documents' code blocks are run by `make test`.
DOCUMENTS ?= ../shared/mission
JOBS ?= $(shell nproc)
PYTHON ?= python3
PY := .venv/bin/python
STAMPS := build/stamps

export DOCUMENTS JOBS
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH := $(CURDIR)/python
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help setup demo demo-all test check fuzz mutants accuracy bench test-cuda bench-cuda docs lint format extension cpp-tests

help:
	@echo "make setup     everything: packages, all extras in .venv, the extension"
	@echo "make demo      train a small network on the CPU engine (make demo-all: on every backend)"
	@echo "make test      all tests, with seconds per group"
	@echo "make check     the tests under sanitizers"
	@echo "make fuzz      the parsers on mutated input (SECONDS=60 for each); MUTANTS=100000 of models"
	@echo "make mutants   planted faults: would a test notice? (ONLY=3,7 for some of them)"
	@echo "make accuracy  the elementary functions on every float32 input (about an hour)"
	@echo "make bench     benchmarks against other frameworks"
	@echo "make test-cuda the tests of CudaBackend on a GPU; make bench-cuda its benchmarks"
	@echo "make docs      the generated pages and tables; all links, anchors and blocks of the pages checked"
	@echo "make lint      formatting, naming, types (make format: formats)"

setup: setup-test setup-check extension $(STAMPS)/system-lint $(STAMPS)/python-dev $(STAMPS)/python-demo
	@echo "ready; to use it from a shell: . .venv/bin/activate"

demo: extension $(STAMPS)/python-demo
	$(PY) -m examples.digits

demo-all: extension $(STAMPS)/python-demo $(STAMPS)/python-torch $(STAMPS)/python-jax $(STAMPS)/python-mlx
	$(PY) -m examples.digits

test:
	@$(PYTHON) scripts/run_tests.py test </dev/null

check:
	@$(PYTHON) scripts/run_tests.py check </dev/null

fuzz:
	@$(PYTHON) scripts/run_tests.py fuzz </dev/null

mutants:
	@$(PYTHON) scripts/run_tests.py mutants </dev/null

accuracy: setup-test cpp-debug
	scripts/cpp_tests.sh build/debug '--gtest_filter=*MacroAccuracy*' --gtest_also_run_disabled_tests

bench: extension $(STAMPS)/python-test $(STAMPS)/python-bench
	$(PY) -m benchmarks

# With the driver of a GPU in place of the emulator; CUDA_LIB names another one.
CUDA_LIB ?= libcuda.so.1
CUDA_TESTS := $(patsubst %,tests/python/backends/test_%.py,cuda_backend cuda_graphs cuda_attention \
	cublaslt cudnn products_of_halves nvrtc)
# Of all devices: those of them that name CUDA.
DEVICE_TESTS := $(wildcard tests/python/backends/test_device_*.py) tests/python/test_digits.py
test-cuda: export MITHRIL_CUDA_LIB := $(CUDA_LIB)
test-cuda: setup-test extension
	$(PY) -c "import mithril as ml; print(ml.CudaBackend(), dict(ml.CudaBackend().device_info))"
	$(PY) -m pytest -q -rs $(CUDA_TESTS) $(PYTEST_OPTIONS)
	$(PY) -m pytest -q -rs -k cuda $(DEVICE_TESTS) $(PYTEST_OPTIONS)
	$(PY) -m pytest -q tests/python/test_op_matrix.py --backends=cuda $(PYTEST_OPTIONS)

# PyTorch is a contender where the environment has one for CUDA; nothing is installed but NVRTC.
bench-cuda: extension $(STAMPS)/python-cuda
	$(PY) -m benchmarks --only gpu --only cuda $(BENCH_OPTIONS)

docs: extension $(STAMPS)/python-test
	$(PY) -W error -m mithril docs
	$(PY) -m pytest -q -W ignore tests/python/test_pages.py tests/python/cli/test_docs.py tests/python/cli/test_links.py tests/python/test_readme.py

lint: extension $(STAMPS)/system-lint $(STAMPS)/python-dev build/lint/build.ninja
	@scripts/lint.sh

format: $(STAMPS)/system-lint $(STAMPS)/python-dev
	scripts/cpp_files.sh | xargs clang-format -i
	$(PY) -m ruff check --fix-only -q .
	$(PY) -m ruff format -q .

# The extension as Python users have it (release), inside python/mithril.
extension: build/release/build.ninja
	@cmake --build --preset release -j$(JOBS)

# What `scripts/run_tests.py` asks for, group by group.
setup-test: $(STAMPS)/system-build $(STAMPS)/system-test $(STAMPS)/python-build $(STAMPS)/python-test
setup-check: setup-test $(STAMPS)/system-check
cpp-%: build/%/build.ninja
	@cmake --build --preset $* -j$(JOBS)

build/%/build.ninja: CMakePresets.json $(STAMPS)/system-build $(STAMPS)/python-build
	cmake --preset $* >build/configure-$*.log || { cat build/configure-$*.log; exit 1; }
	@touch $@
build/tsan/build.ninja build/fuzz/build.ninja: $(STAMPS)/system-check

$(STAMPS)/system-%: scripts/system_packages.sh
	@mkdir -p $(@D)
	scripts/system_packages.sh $* </dev/null
	@touch $@

.venv/pyvenv.cfg: | $(STAMPS)/system-build
	$(PYTHON) -m venv .venv
	@echo "$(CURDIR)/python" >"$$(.venv/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/mithril.pth"

$(STAMPS)/python-%: pyproject.toml scripts/install_requirements.py .venv/pyvenv.cfg
	@mkdir -p $(@D)
	$(PY) scripts/install_requirements.py $*
	@touch $@

.PRECIOUS: $(STAMPS)/% build/%/build.ninja
.PHONY: setup-test setup-check
