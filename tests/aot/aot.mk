# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Programs that XLA compiles for accelerators that are not here. Nothing runs.

.PHONY: check-aot
CHECKS += aot
check-aot: $(NEWEST)/.ready $(B)/plugin-newest/.ready $(XLA_LIBRARY)
	@PYTHONPATH=lib/python:$(B)/plugin-newest PYTHONDONTWRITEBYTECODE=1 TF_CPP_MIN_LOG_LEVEL=3 \
		JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 \
		$(NEWEST_PYTHON) tests/aot/test_compiled.py

# Compares the planner's predictions with XLA's compilers (aot-pairs), and compiles the published
# programs (aot-published), in an hour each. aot-memory compiles steps whose state or weights are in
# actmem, in minutes. XLA's results are cached, so the next time takes two minutes. LIBTPU is a
# folder into which pip has installed libtpu (--target). PAIRS has options of tests/aot/pairs.
LIBTPU ?=
.PHONY: aot-pairs aot-published aot-memory
aot-pairs: COMPARE = tests/aot/pairs $(PAIRS)
aot-published: COMPARE = tests/aot/published
aot-memory: COMPARE = tests/aot/memory
aot-pairs aot-published aot-memory: $(NEWEST)/.ready $(B)/plugin-newest/.ready $(XLA_LIBRARY)
	@PYTHONPATH=lib/python:$(B)/plugin-newest$(LIBTPU:%=:%) PYTHONDONTWRITEBYTECODE=1 \
		TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 \
		$(NEWEST_PYTHON) -W ignore $(COMPARE)
