# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the planner, by pytest. test_peak.py compiles 202 policies, which takes
# minutes: `make check-plan` runs it besides, and `make check` does without.

CHECKS += planner
CHECK_PLAN = $(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider \
	--basetemp $(B)/tests/$(@:check-%=%) --tap tests/plan

.PHONY: check-plan check-planner
check-plan check-planner: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem | $(B)/tests
check-plan:
	@$(CHECK_PLAN)
check-planner:
	@$(CHECK_PLAN) --ignore tests/plan/test_peak.py

# The planner's proof on this machine's processors: what it decides is run beside other
# policies. What has been run is not run again; BENCH_PLAN=--again begins anew.
.PHONY: bench-plan
bench-plan: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem
	@$(VENV_PYTHON) tests/plan/bench/bench-plan $(B) $(BENCH_PLAN)
