# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Hides NVIDIA's own libraries from JAX's plugin: they know that this driver is none
of theirs."""
