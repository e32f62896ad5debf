# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the planner, by pytest. Those of CHECK_PLAN_LONG compile 202 policies and every
# kind of model, and make 24 plans of large models, which takes minutes: `make check-plan` runs
# them besides, and `make check` does without.

CHECKS += planner
CHECK_PLAN = $(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider \
	--basetemp $(B)/tests/$(@:check-%=%) --tap tests/plan

CHECK_PLAN_LONG = test_peak.py test_models_run.py test_outcomes.py test_largest.py

.PHONY: check-plan check-planner
check-plan check-planner: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem | $(B)/tests
check-plan:
	@$(CHECK_PLAN)
check-planner:
	@$(CHECK_PLAN) $(CHECK_PLAN_LONG:%=--ignore tests/plan/%)

# The planner's proof on this machine's processors: what it decides is run beside other
# policies. What has been run is not run again; BENCH_PLAN=--again begins anew.
.PHONY: bench-plan
bench-plan: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem
	@$(VENV_PYTHON) tests/plan/bench/bench-plan $(B) $(BENCH_PLAN)
