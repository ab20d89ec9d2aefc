# make run      fetch a model, answer a question with an F8_E4M3 cache, print speed and cache size
# make test     build, then every test            make check   linters, types, warnings as errors
# make test-generic  the runtime's tests by the kernels without SIMD
# make sanitize the runtime's tests under gcc's address and undefined-behaviour sanitizers
# make check-san every test, the C programs and the fuzz targets under sanitizers, half an hour
# make bench    benchmarks                        make format  what check wants of the layout
# make clean    remove what was built
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
QUESTION ?= Why is the sky blue? Answer in two sentences.
SOURCES := pyproject.toml setup.py MANIFEST.in $(wildcard pyggml/*.pyx pyggml/*.pxd pyggml/*.pxi) \
    $(shell find csrc -name '*.[ch]' -o -name '*.inc')
WARNINGS := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror
SANITIZE := -fsanitize=address,undefined
# Not those that start programs of their own, nor whole models: the sanitizers slow them down tenfold.
SANITIZED := tests/graph tests/kernels tests/ops tests/core --deselect tests/core/test_c_programs.py --deselect tests/core/test_c_graph.py --deselect tests/graph/test_interrupt.py
PRELOAD = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc PYTHONPATH=$(abspath $(VENV))/sanitize/lib
ASAN := allocator_may_return_null=1
# All but the plain C programs, which limit their address space and have their own sanitized build.
SANITIZED_ALL := tests --deselect tests/core/test_c_programs.py
# Frames below malloc are cut to two, so that a leak of csrc/ has no Python in its stack, which the
# list of suppressions would hide. Not the tests that start compilers, which leak.
LEAKS := tests/graph tests/core tests/gguf tests/ops/test_acc_set.py tests/ops/test_rows.py --deselect tests/core/test_c_programs.py --deselect tests/core/test_c_graph.py --deselect tests/core/test_isa.py --deselect tests/graph/test_interrupt.py
FUZZ_SECONDS ?= 60
COMPILE := -std=c11 -O2 -Icsrc $(WARNINGS) -c -o /dev/null

.PHONY: run test test-generic sanitize check-san check bench format clean
run: $(VENV)/run.stamp
	$(BIN)/pyggml pull smollm2
	$(BIN)/pyggml run smollm2 --chat --temp 0 -p "$(QUESTION)" -ctk f8_e4m3 -ctv f8_e4m3 --compare-cache

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest

# Not the models, which have a generic test of their own: ten minutes for little more.
test-generic: $(VENV)/test.stamp
	PYGGML_ISA=generic $(BIN)/python -m pytest tests/formats tests/graph tests/kernels tests/ops tests/core

sanitize: $(VENV)/sanitize.stamp
	$(PRELOAD) ASAN_OPTIONS=detect_leaks=0:$(ASAN) $(BIN)/pytest $(SANITIZED)

check-san: $(VENV)/sanitize.stamp
	$(PRELOAD) ASAN_OPTIONS=detect_leaks=0:$(ASAN) $(BIN)/pytest $(SANITIZED_ALL)
	$(PRELOAD) ASAN_OPTIONS=detect_leaks=1:malloc_context_size=3:$(ASAN) LSAN_OPTIONS=suppressions=tests/lsan.supp $(BIN)/pytest -p no:cacheprovider $(LEAKS)
	$(MAKE) -C tests/c tsan asan graph-tsan graph-asan
	$(MAKE) -j2 -C tests/fuzz asan tsan DO=all
	$(MAKE) -C tests/fuzz asan tsan COUNT=1000000000 SECONDS_=$(FUZZ_SECONDS)

bench: $(VENV)/test.stamp
	$(BIN)/python -m pytest bench

check: $(VENV)/dev.stamp
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest --allowlist tests/stubtest_allow.txt pyggml._core
	PATH="$(abspath $(BIN)):$$PATH" cython-lint pyggml/_core.pyx pyggml/_core.pxd pyggml/_graph.pxi pyggml/_params.pxi pyggml/_dlpack.pxi  # it looks for pycodestyle there
	$(BIN)/double-quote-cython-strings pyggml/_core.pyx pyggml/_core.pxd pyggml/_graph.pxi pyggml/_params.pxi pyggml/_dlpack.pxi
	find csrc tests/c tests/fuzz -name '*.[ch]' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/codespell
	for cc in gcc clang; do if command -v $$cc > /dev/null; then \
	    find csrc -name '*.c' ! -path '*/kernels/*' | xargs -n 1 $$cc $(COMPILE) -Wconversion || exit 1; \
	    find csrc/kernels -name '*.c' | xargs -n 1 $$cc $(COMPILE) || exit 1; fi; done
	CFLAGS="-Werror -Wno-error=shadow" PYGGML_WERROR=1 $(BIN)/pip wheel -q --disable-pip-version-check --no-deps --wheel-dir $(VENV)/wheel .  # Cython's code shadows

format: $(VENV)/dev.stamp
	$(BIN)/ruff format . && $(BIN)/ruff check --fix-only .
	find csrc tests/c tests/fuzz -name '*.[ch]' | xargs $(BIN)/clang-format -i

# Each stamp: the package, built and installed in place, with the extra that the target needs.
$(VENV)/run.stamp: EXTRA :=
$(VENV)/test.stamp: EXTRA := [test]
$(VENV)/dev.stamp: EXTRA := [test,dev]
$(VENV)/%.stamp: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "This Python has no venv: install it (Debian: apt install python3-venv)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e '.$(EXTRA)'
	@touch $@

# A build of its own from a copy of the sources, so that no object file is shared with the usual one.
$(VENV)/sanitize.stamp: $(VENV)/test.stamp
	rm -rf $(VENV)/sanitize && mkdir -p $(VENV)/sanitize/src
	cp -r csrc pyggml setup.py pyproject.toml README.md LICENSE $(VENV)/sanitize/src
	CC=gcc CFLAGS="$(SANITIZE) -fno-sanitize-recover=undefined -O1 -g" LDFLAGS="$(SANITIZE)" $(BIN)/pip install -q --disable-pip-version-check --no-deps --target $(VENV)/sanitize/lib $(VENV)/sanitize/src
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info pyggml/_core.c pyggml/_core*.so tests/c/build
