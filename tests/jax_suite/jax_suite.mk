# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# JAX's own tests of jax.checkpoint, with actmem in its place. They come from a
# checkout of JAX, since its packages have no tests, so `make check` leaves them
# out:
#
#   make check-jax-suite JAX_SOURCE=FOLDER
#
#   JAX_REF=HEAD         tests of that commit, where the version has no tag
#   SUITE_PYTHON=python  of another environment, with jax, pytest and absl-py
#   SUITE_ARGS='-k scan' options of tests/jax_suite/run

JAX_SOURCE ?=
JAX_REF ?=
SUITE_PYTHON ?= $(VENV_PYTHON)
SUITE_ARGS ?=

.PHONY: check-jax-suite
check-jax-suite: $(if $(JAX_SOURCE),$(patsubst %/bin/python,%/.ready,$(filter \
		$(VENV_PYTHON),$(SUITE_PYTHON))) $(XLA_LIBRARY))
	@$(if $(JAX_SOURCE),,echo 'check-jax-suite wants JAX: git clone --filter=blob:none \
		--no-checkout https://github.com/jax-ml/jax FOLDER, then JAX_SOURCE=FOLDER' >&2; exit 1)
	@$(SUITE_PYTHON) tests/jax_suite/run --source '$(JAX_SOURCE)' --ref '$(JAX_REF)' \
		--folder $(B)/tests/jax_suite $(SUITE_ARGS)
