# SPDX-License-Identifier: BSD-3-Clause
# Every target does its own set-up: Debian packages, .venv/, the build.  Afterwards the command is
# `.venv/bin/nupa`.  Targets that are up to date are not made again.

VENV := .venv
BIN := $(VENV)/bin
BUILD := build
JOBS := $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?= -n $(JOBS)
DEMO_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
DISTRIBUTIONS_ARGS ?=
FUZZ_SECONDS ?= 20
KDIR ?= /lib/modules/$(shell uname -r)/build

# Folders are listed too: one changes when a file of it comes or goes.
C_TREE := $(shell find csrc benchmarks/csrc -not -name '.*' 2>/dev/null)
$(C_TREE): ; # may go away while make runs
C_FILES := $(filter %.c %.h,$(C_TREE))
PY_DIRS := nupa tests benchmarks csrc/binding

CMAKE_FLAGS := -G Ninja -S csrc -Wno-dev
PYTHON_FLAG = -DPython_EXECUTABLE=$(abspath $(BIN)/python)

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test check bench soak build man format lint style tidy sanitize check-c test-c test-py smoke \
	test-vm test-kernel-debug test-distributions rxe-captures modules check-fresh check-arm clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 20

demo: $(BUILD)/packages.run $(BUILD)/built ## a fabric, real RDMA programs on it, a table beside TCP
	$(BIN)/nupa demo $(DEMO_ARGS)

test: test-c ## C and Python tests, without slow matrices and guests
	@$(MAKE) --no-print-directory test-py

# C tests wait half of their time, so clang-tidy runs beside them.  pytest runs alone.
check: $(BUILD)/packages.test style $(BUILD)/pyverbs/built ## format, lint, types, layers, sanitizers, all tests
	@$(MAKE) --no-print-directory -j 2 --output-sync=target NICE="nice -n 19" tidy check-c
	@NUPA_THOROUGH=1 $(MAKE) --no-print-directory test-py TESTS="not vm and not alone"
	@$(MAKE) --no-print-directory smoke

check-c:
	@$(MAKE) --no-print-directory sanitize
	@$(MAKE) --no-print-directory test-c

bench: $(BUILD)/packages.run $(BUILD)/built.dev $(VENV)/installed.dev ## benchmarks, with ratios to the machine's own limits
	$(BIN)/python -m benchmarks $(BENCH_ARGS)
	$(BIN)/python -m pytest -q -o addopts=--import-mode=importlib benchmarks

# The fuzzers run under ASan and UBSan, FUZZ_SECONDS for each of their cases.
soak: $(BUILD)/packages.test $(BUILD)/built ## ten minutes of checked traffic while processes die, then fuzzers: SOAK_ARGS, FUZZ_SECONDS
	$(BIN)/python -m tests.soak $(SOAK_ARGS)
	$(BIN)/python -m tests.soak.fm $(FM_SOAK_ARGS)
	$(BIN)/python -m tests.soak.tenants $(TENANTS_SOAK_ARGS)
	$(BIN)/python -m tests.trunk $(TRUNK_SOAK_ARGS)
	$(BIN)/python -m tests.wire $(WIRE_SOAK_ARGS)
	NUPA_ENDINGS=$${NUPA_ENDINGS:-250} $(BIN)/pytest -q tests/ecosystem/test_endings.py
	@cmake $(CMAKE_FLAGS) -B $(BUILD)/asan -DNUPA_TESTS=ON -DNUPA_SANITIZE=address,undefined >/dev/null
	@cmake --build $(BUILD)/asan --target nupa_tests
	NUPA_FUZZ_SECONDS=$(FUZZ_SECONDS) $(UNRANDOM) ctest --test-dir $(BUILD)/asan -R fuzz \
		--output-on-failure --no-tests=error

build: $(BUILD)/built.dev ## .venv/bin/nupa, nupa/_engine, _model, libibverbs.so.1, C tests, raw benchmarks

# For a machine's own ivshmem or CXL memory: docs/kernel.md.
modules: ## kernel modules for the running kernel, or for KDIR=...: build/modules/*.ko; they taint it
	@rm -rf $(BUILD)/modules && mkdir -p $(BUILD)/modules
	@cp -r $(addprefix csrc/,abi base engine kernel netdev packet region segment wire) $(BUILD)/modules
	@cp csrc/kernel/Kbuild $(BUILD)/modules
	$(MAKE) -C $(KDIR) M=$(abspath $(BUILD)/modules) modules

man: $(VENV)/installed.dev $(BUILD)/built ## manual pages, from --help: man nupa, man nupa-run
	$(BIN)/nupa man

# --- set-up ------------------------------------------------------------------------------------

$(BUILD)/packages.%: .ci/setup
	@.ci/setup packages $*
	@mkdir -p $(@D) && touch $@

# Editable, with a plain .pth: the checkout itself is on the path and costs nothing at start.
# wheel.cmake=false: the C parts are built below, so that a change rebuilds only what it touches.
INSTALL = $(BIN)/pip install -qq --disable-pip-version-check \
	$(addprefix --config-settings=,wheel.cmake=false wheel.platlib=true editable.mode=inplace) -e

$(VENV)/installed: pyproject.toml | $(BUILD)/packages.build
	@.ci/setup venv $(VENV)
	@echo "Python packages for $(VENV)"
	@$(INSTALL) .
	@touch $@

$(VENV)/installed.dev: $(VENV)/installed
	@echo "Python packages for tests and checks"
	@$(INSTALL) '.[dev]'
	@touch $@

# The parts that run NUPA; targets that run tests and benchmarks build them.
$(BUILD)/built: $(VENV)/installed $(C_TREE) | $(BUILD)/packages.build
	@cmake $(CMAKE_FLAGS) -B $(BUILD)/dev -DNUPA_TESTS=ON $(PYTHON_FLAG) >$(BUILD)/cmake.log \
		|| { cat $(BUILD)/cmake.log; false; }
	@cmake --build $(BUILD)/dev
	@rm -rf nupa/lib nupa/bin nupa/_engine*.so nupa/_model*.so
	@cmake --install $(BUILD)/dev --prefix . >/dev/null
	@ln -sf $(abspath nupa/bin/nupa) $(BIN)/nupa
	@touch $@

$(BUILD)/built.dev: $(BUILD)/built
	@cmake --build $(BUILD)/dev --target nupa_tests nupa_benchmarks
	@cmake --install $(BUILD)/dev --prefix . --component nupa_benchmarks >/dev/null
	@touch $@

# --- checks ------------------------------------------------------------------------------------

format: $(VENV)/installed.dev ## rewrite C and Python in the project's style
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/ruff format $(PY_DIRS)
	$(BIN)/ruff check --fix-only --quiet $(PY_DIRS)

# The build tree of the tests, too.  From here on its warnings are errors: a file that compiled with
# warnings before is compiled again, and fails.
$(BUILD)/no-warnings: $(VENV)/installed $(C_TREE) | $(BUILD)/packages.build
	@cmake $(CMAKE_FLAGS) -B $(BUILD)/dev -DNUPA_TESTS=ON -DNUPA_WERROR=ON $(PYTHON_FLAG) >/dev/null
	@cmake --build $(BUILD)/dev --target all nupa_tests nupa_benchmarks
	@touch $@
ifneq (,$(filter check lint style tidy check-c,$(MAKECMDGOALS)))
$(BUILD)/built: | $(BUILD)/no-warnings # not both at once in one tree
endif

lint: style tidy ## formats, ruff, clang-tidy, mypy --strict, layers

style: $(VENV)/installed.dev $(BUILD)/no-warnings
	$(BIN)/ruff format --check --quiet $(PY_DIRS)
	$(BIN)/ruff check --quiet $(PY_DIRS)
	@echo clang-format
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

TIDY_ARGS ?=
# The kernel's modules are built by its own makefiles, with its own headers.
tidy: $(VENV)/installed.dev $(BUILD)/no-warnings
	@echo clang-tidy
	@printf '%s\n' $(filter-out csrc/kernel/%,$(filter %.c,$(C_FILES))) | $(NICE) xargs -P $(JOBS) -n 1 \
		$(BIN)/clang-tidy -p $(BUILD)/dev --quiet $(TIDY_ARGS) 2>$(BUILD)/tidy.log \
		|| { cat $(BUILD)/tidy.log; false; }

# TSan of older compilers does not start where the kernel randomises mmap by more bits than it knows.
UNRANDOM := $(shell setarch -R true 2>/dev/null && echo setarch -R)

sanitize: $(BUILD)/packages.build ## C tests under ASan + UBSan, then under TSan
	@$(MAKE) --no-print-directory $(BUILD)/sanitized.asan
	@$(MAKE) --no-print-directory $(BUILD)/sanitized.tsan

# Fuzzers run longest under ASan, where they find most (`make soak`: much longer).
FUZZ :=
BRIEFLY = NUPA_FUZZ_SECONDS=$${NUPA_FUZZ_SECONDS:-0.5}
$(BUILD)/sanitized.asan: SANITIZE := address,undefined
$(BUILD)/sanitized.tsan: SANITIZE := thread
$(BUILD)/sanitized.tsan: FUZZ = $(BRIEFLY)
$(BUILD)/sanitized.%: $(C_TREE)
	@cmake $(CMAKE_FLAGS) -B $(BUILD)/$* -DNUPA_TESTS=ON -DNUPA_SANITIZE=$(SANITIZE) >/dev/null
	@cmake --build $(BUILD)/$* --target nupa_tests
	$(FUZZ) $(UNRANDOM) ctest --test-dir $(BUILD)/$* --output-on-failure --no-tests=error -j $(JOBS)
	@touch $@

# The tests show that the C parts build without a warning and lay out the same structs.  They run
# ARM's atomics, signal frames and assembly.  They do not reorder loads and stores, as QEMU keeps
# most of the order of the machine below it; test_channel_order does that.  QEMU 7.2 allocates by
# GLib's slices, whose lock another thread may hold while one forks: the child waits for ever.
check-arm: export G_SLICE := always-malloc
check-arm: $(BUILD)/packages.arm ## C tests for 64-bit ARM, in QEMU's user mode: six minutes
	@cmake $(CMAKE_FLAGS) -B $(BUILD)/arm64 --toolchain $(abspath csrc/arm64.cmake) \
		-DNUPA_TESTS=ON -DNUPA_WERROR=ON >/dev/null
	@cmake --build $(BUILD)/arm64 --target all nupa_tests nupa_benchmarks
	$(BRIEFLY) ctest --test-dir $(BUILD)/arm64 --output-on-failure --no-tests=error -j $(JOBS)

test-c: $(BUILD)/packages.test $(BUILD)/built.dev
	$(BRIEFLY) ctest --test-dir $(BUILD)/dev --output-on-failure --no-tests=error -j $(JOBS)

$(BUILD)/pyverbs/built: tests/suites/build_pyverbs | $(BUILD)/packages.test $(VENV)/installed.dev
	@echo "PyPI's pyverbs, whose tests run over NUPA"
	@tests/suites/build_pyverbs $(BIN) $(@D)
	@touch $@

# Guests and the soak take both cores, so they run after the others (smoke).
TESTS := not vm and not slow
test-py: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built.dev
	$(BIN)/pytest $(PYTEST_ARGS) -m "$(TESTS)"

smoke: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built
	$(BIN)/pytest -m "vm and not long or alone" tests/soak tests/system tests/trunk tests/wire

test-vm: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built.dev ## tests in QEMU guests, of all kinds
	$(BIN)/pytest -m vm tests/system

# A kernel with KASAN, lockdep or KCSAN: Debian has none.  docs/kernel.md says how one is made.
KERNEL ?=
PATIENCE ?= 5
CPUS ?= 1
DEBUG_TESTS ?= $(wildcard tests/system/test_kernel*.py) tests/system/test_upper_layers.py
test-kernel-debug: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built.dev ## tests of the kernel modules in guests with the kernel in the folder KERNEL=...
	@test -n "$(KERNEL)" || { echo "KERNEL=FOLDER is missing: docs/kernel.md says how one is made" >&2; exit 2; }
	NUPA_VM_KERNEL=$(abspath $(KERNEL)) NUPA_VM_CPUS=$(CPUS) NUPA_TEST_PATIENCE=$(PATIENCE) $(BIN)/pytest -m vm $(DEBUG_TESTS)

# CI does not run this: the packages of four releases are 170 MB.
test-distributions: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built ## RDMA programs of Debian 12, 13, testing, unstable, with their own libc
	NUPA_DISTRIBUTIONS=1 $(BIN)/pytest $(DISTRIBUTIONS_ARGS) tests/distributions

# The repository has these files: packets of another implementation.
rxe-captures: $(BUILD)/packages.test $(VENV)/installed.dev $(BUILD)/built ## tests/data/rxe_*.pcap, recorded anew in two QEMU guests
	$(BIN)/python tests/data/record_rxe.py

# CI does not run this: each system takes as long as CI itself.
FRESH ?= bookworm trixie
check-fresh: ## the README's two commands on bare Debian systems (FRESH='bookworm trixie'); needs root
	.ci/fresh $(FRESH)

clean: ## remove everything that was built, and the virtual environment
	rm -rf $(BUILD) $(VENV) nupa/lib nupa/bin nupa/_engine*.so nupa/_model*.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find nupa tests benchmarks csrc -name __pycache__ -prune -exec rm -rf {} +
