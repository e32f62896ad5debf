# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Arrays, tables and comparison, which the programs examples/offload_*.py share."""
