# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""JAX looks for a GPU's device files before it starts a plugin for one; the stand-in
has none."""
from jax._src import hardware_utils

hardware_utils.has_visible_nvidia_gpu = lambda: True
