# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# make demo          trains four variants of a small transformer, and compares them
#   DEMO_STEPS=N     steps of each training
#   DEMO_ALLOW=LIST  memory that actmem may fall back to; actmem reports a fallback
#   DEMO_SPILL=DIR   folder of the spill file; its file system needs direct I/O

DEMO_STEPS ?= 30
DEMO_ALLOW ?= thp,4k,unlocked
DEMO_SPILL ?= $(B)
DEMO_RUN = $(B)/bin/actmem run --allow $(DEMO_ALLOW) -- \
	$(DEMO_VENV)/bin/python -B examples/demo/demo.py

CHECKS += demo

.PHONY: demo
demo:
	@scripts/setup packages build demo
	@$(MAKE) --no-print-directory -s jax
	@$(DEMO_RUN) --steps $(DEMO_STEPS) --output $(B) --spill $(DEMO_SPILL)

.PHONY: check-demo
check-demo: $(NEWEST)/.ready all
	@mkdir -p $(B)/check; echo 'of an earlier run' >$(B)/check/demo.json
	@$(DEMO_RUN) --steps 6 --output $(B)/check --spill $(DEMO_SPILL) | sed 's/^/# /'
	@$(NEWEST_PYTHON) -B examples/demo/check.py $(B)/check/demo.json
