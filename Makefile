# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The two commands are `make demo` and `make check`; `make help` lists the
# rest. Each directory adds its own rules in a .mk file:
#
#   ALL += file          built by `make`
#   LEFT_OUT += 'why'    a part that `make` and `make install` cannot build here,
#                        in single quotes, because the shell prints it
#   CHECKS += name       `make check` runs check-name, which prints TAP
#   CHECKS_IN_VM += name the same, for checks in virtual machines: they run beside
#                        the others
#   CHECK_NEEDS += file  built before the checks begin, because they run it

ACTMEM_VERSION := $(shell cat VERSION)
ABI := 0

B := build
PREFIX ?= /usr/local
DESTDIR ?=
BINDIR = $(DESTDIR)$(PREFIX)/bin
LIBDIR = $(DESTDIR)$(PREFIX)/lib
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include
DATADIR = $(DESTDIR)$(PREFIX)/share/actmem
MANDIR = $(DESTDIR)$(PREFIX)/share/man

WARNINGS := -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes \
	-Wshadow -Wpointer-arith -Wwrite-strings -Wno-unused-parameter
# Warnings are errors only in a Git tree: a tarball may meet a newer compiler.
WARNINGS += $(if $(wildcard .git),-Werror)
CFLAGS ?= -O2 -g
# DEBUG=1: the heap checks its bookkeeping at each operation, and aborts if it is wrong.
DEBUG ?=
ALL_CFLAGS = -std=gnu11 $(WARNINGS) -fvisibility=hidden -fPIC -pthread \
	-D_GNU_SOURCE -include lib/base/c_library.h -Ilib -Ilib/include $(if $(DEBUG),-DACTMEM_DEBUG) $(CFLAGS)

PYTHON3 ?= python3
VENV := $(B)/venv
VENV_PYTHON := $(VENV)/bin/python
# An environment with the current JAX, which needs a newer Python than Debian 12 has.
NEWEST := $(B)/venv-newest
NEWEST_PYTHON := $(NEWEST)/bin/python
# The demo uses that environment if it exists, and otherwise a smaller one.
DEMO_VENV := $(if $(wildcard $(NEWEST)/.ready),$(NEWEST),$(B)/venv-demo)

ALL :=
LEFT_OUT :=
CHECKS :=
CHECKS_IN_VM :=
CHECK_NEEDS :=

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

.PHONY: all install uninstall
all:

# `make install` begins with this, and `make uninstall` ends with its counterpart.
install::
	@packaging/traces note $(TRACES) $(INSTALLED_FOLDERS)

include $(sort $(wildcard */*.mk */*/*.mk))

uninstall::
	@packaging/traces clear $(TRACES)
	@$(if $(DESTDIR),:,packaging/traces clear-machine $(PREFIX))

# The last lines that `make` and `make install` print.
TELL_LEFT_OUT = @$(if $(LEFT_OUT),printf 'left out: %s\n' $(LEFT_OUT),:)
all: $(ALL)
	$(TELL_LEFT_OUT)
install::
	$(TELL_LEFT_OUT)

# build/obj has the same folders as the source tree.
$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# Installs missing Debian packages and Python environments.
$(VENV)/.ready: scripts/requirements.txt
	@scripts/setup venv $(VENV) $<

$(NEWEST)/.ready: scripts/requirements-newest.txt scripts/requirements-demo.txt
	@scripts/setup venv $(NEWEST) $< newest

$(B)/venv-demo/.ready: scripts/requirements-demo.txt
	@scripts/setup venv $(@D) $< newest

# What `make check` costs on two idle cores. The README points here.
CHECK_COST := 37 minutes and downloads 0.4 GB if ~/.cache/actmem and build/ are full; \
	otherwise about 53 minutes and 2.4 GB
# What takes longest begins first, so that no core waits for it at the end.
LONGEST := jax-driver dkms vm-7.2 vm-6.12 vm-6.1 kube-driver
# `make check-quick` runs suites that need neither a virtual machine nor JAX. Those of QUICK_BESIDE
# use nothing that other suites could change.
QUICK := unit lib-memfd tools exporter
QUICK_BESIDE := lib-threads jax-threads style man layers lib-random
QUICK_SLOW := cuda preload malloc memory kube slurm deb dist
QUICK_NEEDS = all $(UNIT_PROGRAMS) $(UNIT_RANDOM) $(LIB_TEST_PROGRAMS) $(LIB_THREADS) $(SAVED_TESTS) \
	$(ARRAY_TESTS) $(TOOLS_TEST_PROGRAMS) $(CUDA_STANDIN) $(MAN_PAGES) $(STYLE_VENV)/.ready

.PHONY: check
check:
	@echo 'make check takes $(CHECK_COST).'
	@scripts/setup packages build check
	@$(MAKE) --no-print-directory -s -j2 $(VENV)/.ready $(NEWEST)/.ready
	@$(MAKE) --no-print-directory -s -j$$(nproc) all check-needs
	@tests/run $(CHECKS) --beside $(LONGEST) $(filter-out $(LONGEST),$(CHECKS_IN_VM))

.PHONY: check-quick check-quick-needs
check-quick:
	@scripts/setup packages build check
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@$(MAKE) --no-print-directory -s -j$$(nproc) check-quick-needs
	@tests/run $(QUICK) --beside $(QUICK_BESIDE)
	@echo 'left out: suites that need a virtual machine or JAX, and the slowest others: $(QUICK_SLOW)'

check-quick-needs: $(QUICK_NEEDS)

.PHONY: check-needs
check-needs: $(CHECK_NEEDS)

.PHONY: clean
clean:
	rm -rf $(B)

.PHONY: help
help:
	@echo 'make               build what this machine can build into build/'
	@echo 'make jax           build also what JAX needs, with a JAX in build/ for its header'
	@echo 'make demo          train a small transformer with activations in actmem'
	@echo 'make examples      show what JAX offloads to the host, and what that saves'
	@echo 'make check         run every test except those on a debug kernel'
	@echo 'make check-quick   run those that need no virtual machine and run no JAX program, in 3 minutes'
	@echo 'make check-strict  run the tests of the driver on a debug kernel; the first run builds it'
	@echo 'make check-kcsan   run them on a kernel that finds data races; the first run builds it'
	@echo 'make check-NAME    run one of: $(CHECKS) $(CHECKS_IN_VM)'
	@echo 'make check-jax VERSION=0.11.2  test the Python module with that version of JAX'
	@echo "make check-jax-suite JAX_SOURCE=  JAX's own tests of checkpoint, from a checkout of it"
	@echo 'make fuzz          random operations on the driver for an hour: KERNEL=7.2 SECONDS= SEED='
	@echo 'make mutants       break the code once for each of a list of mistakes: tests must notice'
	@echo 'make bench         measure the library against its peers on this machine'
	@echo 'make bench-vm      measure the driver against its peers in a booted kernel'
	@echo 'make bench-PART    one of its parts, as bench-transfer, beside fio'
	@echo 'make bench-plan    run what the planner decides beside other policies'
	@echo 'make module KDIR=  build the kernel module'
	@echo 'make deb           packages for Debian, into build/deb/'
	@echo 'make rpm           packages for Fedora and derivatives, into build/rpm/'
	@echo 'make dist          the tarball of this version, into build/dist/'
	@echo 'make wheel         the Python module for pip, into build/wheel/'
	@echo 'make install       PREFIX= DESTDIR=; make uninstall undoes it'
	@echo 'make dkms-install  have DKMS build, sign and install the module; make dkms-remove'
	@echo 'make clean         remove build/'
