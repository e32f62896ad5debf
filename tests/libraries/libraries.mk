# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of libraries that call jax.checkpoint, under patch(): one process for
# each, since MaxText changes JAX's settings. The libraries lie in a folder apart,
# on top of the environment with today's JAX.

CHECKS += libraries

LIBRARIES := $(B)/wheels-libraries

$(LIBRARIES)/.ready: tests/libraries/requirements.txt $(NEWEST)/.ready
	@scripts/setup wheels $(LIBRARIES) $< $(NEWEST_PYTHON)

.PHONY: check-libraries
check-libraries: $(LIBRARIES)/.ready $(XLA_LIBRARY) $(B)/bin/actmem
	@mkdir -p $(B)/tests
	@status=0; for test in tests/libraries/test_*.py; do \
		PYTHONPATH=$(abspath $(LIBRARIES)) $(B)/bin/actmem run --allow any -- \
			$(NEWEST_PYTHON) -m pytest -p no:terminal -p no:cacheprovider \
			--basetemp $(B)/tests/libraries --tap $$test || status=1; \
	done; exit $$status
