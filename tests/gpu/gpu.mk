# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# tests/gpu/run measures on a machine with a GPU. Its own test needs none.

.PHONY: gpu-needs check-gpu-run

# Built by tests/gpu/run. check-gpu and check-gpu-preload build their own programs.
# `actmem run --offload` looks for the Python module where a package has it.
gpu-needs: all $(CUDA_STANDIN)
	@mkdir -p $(B)/lib/actmem
	@ln -sfn $(CURDIR)/lib/python $(B)/lib/actmem/python

# Uses the stand-in for libcuda.so.1, JAX on the CPU, and small sizes.
CHECKS += gpu-run
CHECK_NEEDS += $(CUDA_STANDIN)
check-gpu-run: all $(VENV)/.ready $(CUDA_STANDIN)
	@mkdir -p $(B)/check
	@PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/gpu/test_run.py $(B)
