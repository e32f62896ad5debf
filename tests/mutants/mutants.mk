# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Hours, so `make check` leaves it out: `make mutants FOLDER=store`. It goes on where it
# was stopped. With ALL=1 it also lists the tests that find nothing that others do not.

.PHONY: mutants
mutants: $(VENV)/.ready
	@$(PYTHON3) tests/mutants/run $(if $(FOLDER),--folder $(FOLDER)) $(if $(ALL),--all)
