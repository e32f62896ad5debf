# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""How pip makes a wheel of the Python module: make puts all that lies in the package into
setuptools' folder. pyproject.toml has the rest.
"""
import importlib.util
import os
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDER = "build/python"     # build/lib is make's


class Build(build_py):
    def run(self):
        if self.editable_mode:      # it uses what make has built
            return
        package = os.path.join(os.path.abspath(self.build_lib), "actmem")
        shutil.rmtree(package, ignore_errors=True)
        jaxlib = os.path.dirname(importlib.util.find_spec("jaxlib").origin)
        subprocess.run(["make", "-s", "wheel-module", f"PYTHON_MODULE={package}",
                        f"XLA_INCLUDE={os.path.join(jaxlib, 'include')}"], check=True)


class Wheel(bdist_wheel):
    """For any Python on this platform, as ctypes loads the libraries."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Native(Distribution):
    def has_ext_modules(self):
        return True


os.makedirs(FOLDER, exist_ok=True)
setup(distclass=Native, cmdclass={"build_py": Build, "bdist_wheel": Wheel},
      options={"build": {"build_base": FOLDER}, "egg_info": {"egg_base": FOLDER}})
