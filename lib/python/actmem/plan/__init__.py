# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Which activations should leave the device."""
