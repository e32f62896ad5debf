# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Random JAX programs that compare actmem with stock JAX; see tests/jax/programs.py.

draw.py      draws a case from a seed: a program, a form, flags
text.py      writes a program as Python
compare.py   runs a case beside stock JAX and compares
worker.py    is the process that does so, for one case after another
workers.py   starts such processes, and notices when one crashes or hangs
shrink.py    makes a failing program smaller
"""
