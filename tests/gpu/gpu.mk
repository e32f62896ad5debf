# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# tests/gpu/run measures on a machine with a GPU. Its own test needs none.

.PHONY: gpu-needs check-gpu-run

# Built by tests/gpu/run. check-gpu and check-gpu-preload build their own programs.
# `actmem run --offload` looks for the Python module where a package has it.
gpu-needs: all $(CUDA_STANDIN)
	@mkdir -p $(B)/lib/actmem
	@ln -sfn $(CURDIR)/lib/python $(B)/lib/actmem/python

# test_run.py uses the stand-in for libcuda.so.1, JAX on the CPU, and small sizes. test_tables.py
# reads pages and results.
CHECKS += gpu-run
CHECK_NEEDS += $(CUDA_STANDIN)
check-gpu-run: all $(VENV)/.ready $(CUDA_STANDIN)
	@mkdir -p $(B)/check
	@status=0; PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/gpu/test_tables.py || status=1; \
		PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/gpu/test_run.py $(B) || status=1; exit $$status
