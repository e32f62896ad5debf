# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The style of C and Python, and words that the project avoids.

CHECKS += style

STYLE_VENV := $(B)/venv-style

$(STYLE_VENV)/.ready: scripts/requirements-style.txt
	@scripts/setup venv $(@D) $<

.PHONY: check-style
CHECK_NEEDS += $(STYLE_VENV)/.ready
check-style: $(STYLE_VENV)/.ready
	@$(PYTHON3) -B tests/style/run $(STYLE_VENV)/bin $(B)
