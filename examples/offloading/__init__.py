# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the programs examples/offload_*.py share: arrays, tables, comparison."""
