# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the planner, by pytest. test_peak.py compiles 202 policies, and
# test_outcomes.py makes 17 plans of large models, which takes minutes: `make check-plan` runs
# them besides, and `make check` does without.

CHECKS += planner
CHECK_PLAN = $(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider \
	--basetemp $(B)/tests/$(@:check-%=%) --tap tests/plan

.PHONY: check-plan check-planner
check-plan check-planner: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem | $(B)/tests
check-plan:
	@$(CHECK_PLAN)
check-planner:
	@$(CHECK_PLAN) --ignore tests/plan/test_peak.py --ignore tests/plan/test_outcomes.py
