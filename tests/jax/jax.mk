# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the JAX binding, by pytest, printing TAP.

CHECKS += jax

.PHONY: check-jax
check-jax: $(VENV)/.ready $(XLA_LIBRARY)
	@$(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider --tap tests/jax
