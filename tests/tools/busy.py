# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program that makes files without end in a folder of its own where it is run. It prints an
empty line when there are so many that to remove them takes a while."""

PROGRAM = """
import os
os.mkdir("busy")
os.chdir("busy")
number = 0
while True:
    open(str(number), "w").close()
    number += 1
    number == 5000 and print(flush=True)
"""
