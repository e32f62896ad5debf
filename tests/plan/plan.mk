# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the planner, by pytest.

CHECKS += plan

.PHONY: check-plan
check-plan: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem | $(B)/tests
	@$(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider \
		--basetemp $(B)/tests/plan --tap tests/plan
