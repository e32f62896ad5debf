# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The same plugin in a booted machine of two memory nodes, where XLA does not ask CUDA for
# host memory but maps and registers it, on the node of the GPU: here that of a PCI device
# on a bus of its own. The processor is one with AVX, which jaxlib wants.

NODES_GPU := 0000:80:00.0
NODES_GPU_AT_0 := 0000:90:00.0

.PHONY: check-plugin-nodes
CHECKS_IN_VM += plugin-nodes
check-plugin-nodes: all $(B)/vm/init $(B)/tests/cuda/stream_nodes $(PLUGIN_STANDINS) $(PLUGIN_WHEELS)/.ready $(CUDA_STANDIN)
	@tests/vm/run --kernel 6.12 --tap --host --cpu $(JAX_CPU) --numa 2 --pci-node 1 --pci-node 0 \
		--memory 3G --timeout 1800 -- tests/plugin/run_on_nodes $(B) $(VENV_PYTHON) \
		$(NODES_GPU) 1 $(NODES_GPU_AT_0)
