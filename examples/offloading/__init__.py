# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The input arrays, the tables and the comparison that the programs examples/offload_*.py share."""
