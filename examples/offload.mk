# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# make examples   shows what JAX offloads to the host, in a table for each program

OFFLOAD_EXAMPLES := $(addprefix examples/offload_,activations.py parameters.py both.py \
	optimizer.py)

.PHONY: examples
examples:
	@scripts/setup packages demo
	@$(MAKE) --no-print-directory -s $(NEWEST)/.ready
	@for program in $(OFFLOAD_EXAMPLES); do \
		$(NEWEST_PYTHON) -B $$program || exit; \
		echo; \
	done

# The programs are small, so XLA compiles them without optimization, which is faster.
EXAMPLES_TEST = env JAX_PLATFORMS=cpu PYTHONPATH=tests/tools:examples \
	XLA_FLAGS='--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true' \
	$(NEWEST_PYTHON) -B

CHECKS += examples
.PHONY: check-examples
check-examples: $(NEWEST)/.ready all
	@status=0; \
	for tests in test_report.py test_programs.py; do \
		$(EXAMPLES_TEST) tests/examples/$$tests $(B) || status=1; \
	done; \
	exit $$status
