# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# JAX's own plugin for CUDA on the stand-in for libcuda.so.1, which has memory, streams
# and copies and computes nothing: programs that only move arrays run as on a GPU, through
# all of XLA.

PLUGIN_WHEELS := $(B)/plugin
PLUGIN_NEWEST := $(B)/plugin-newest
PLUGIN_STANDIN := $(B)/tests/plugin
PLUGIN_STANDINS := $(addprefix $(PLUGIN_STANDIN)/,libcudart.so.13 libcudnn.so.9 libnvidia-ml.so.1)

$(PLUGIN_WHEELS)/.ready: tests/plugin/requirements.txt $(VENV)/.ready
	@scripts/setup wheels $(PLUGIN_WHEELS) $< $(VENV_PYTHON)

$(PLUGIN_NEWEST)/.ready: tests/plugin/requirements-newest.txt $(NEWEST)/.ready
	@scripts/setup wheels $(PLUGIN_NEWEST) $< $(NEWEST_PYTHON)

$(PLUGIN_STANDIN)/libcudart.so.13: $(B)/obj/cuda/tests/plugin/standin/cudart.o
$(PLUGIN_STANDIN)/libcudnn.so.9: $(B)/obj/cuda/tests/plugin/standin/cudnn.o
$(PLUGIN_STANDIN)/libnvidia-ml.so.1: $(B)/obj/cuda/tests/plugin/standin/nvml.o
$(PLUGIN_STANDINS):
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs $^ -o $@

.PHONY: check-plugin check-plugin-newest
CHECKS += plugin plugin-newest
CHECK_NEEDS += $(PLUGIN_STANDINS) $(PLUGIN_WHEELS)/.ready $(PLUGIN_NEWEST)/.ready
check-plugin: all $(PLUGIN_STANDINS) $(PLUGIN_WHEELS)/.ready $(CUDA_STANDIN)
	@tests/plugin/run $(B) $(VENV_PYTHON) $(PLUGIN_WHEELS)

check-plugin-newest: all $(PLUGIN_STANDINS) $(PLUGIN_NEWEST)/.ready $(CUDA_STANDIN)
	@tests/plugin/run $(B) $(NEWEST_PYTHON) $(PLUGIN_NEWEST)
