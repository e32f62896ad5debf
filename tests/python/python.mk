# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Python module's annotations, its memory where nobody chose any, and the module as pip
# installs it, on both versions of Python.

CHECKS += python

AUDITWHEEL := $(B)/wheels-python

$(AUDITWHEEL)/.ready: tests/python/requirements.txt $(VENV)/.ready
	@scripts/setup wheels $(AUDITWHEEL) $< $(VENV_PYTHON)

.PHONY: check-python
check-python: $(NEWEST)/.ready $(AUDITWHEEL)/.ready wheel
	@status=0; \
	for tests in test_types.py test_best.py test_wheel.py test_versions.py; do \
		PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/python/$$tests || status=1; \
	done; \
	exit $$status
