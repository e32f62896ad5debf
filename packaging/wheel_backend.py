# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""How pip makes a wheel of the Python module: by setuptools, but make puts all that lies in the
package into its folder. pyproject.toml has the rest.
"""
import glob
import importlib.util
import os
import re
import shutil
import subprocess

from setuptools.build_meta import *  # noqa: F403    what pip calls
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# That of pyproject.toml; build/lib is make's. It has to be there.
os.makedirs("build/python", exist_ok=True)


class Build(build_py):
    def run(self):
        if self.editable_mode:      # it uses what make has built
            return
        package = os.path.join(os.path.abspath(self.build_lib), "actmem")
        shutil.rmtree(package, ignore_errors=True)
        jaxlib = os.path.dirname(importlib.util.find_spec("jaxlib").origin)
        subprocess.run(["make", "-s", "wheel-module", f"PYTHON_MODULE={package}",
                        f"XLA_INCLUDE={os.path.join(jaxlib, 'include')}"], check=True)


def manylinux(libraries):
    """The C library that they want, as pip calls it; None if they want others besides."""
    told = subprocess.run(["objdump", "-p", *libraries], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    others = set(re.findall(r"NEEDED +(\S+)", told)) - set(map(os.path.basename, libraries))
    versions = [re.fullmatch(r"2\.(\d+)(\.\d+)?", version)
                for version in re.findall(r"GLIBC_(\S+)", told)]
    if not all(versions) or not all(re.match(r"(libc|ld-linux.*)\.so\.", name)
                                    for name in others):
        return None
    return f"manylinux_2_{max(int(version[1]) for version in versions)}"


class Wheel(bdist_wheel):
    """For any Python, as ctypes loads the libraries, and any Linux that these run on."""

    def initialize_options(self):
        self.distribution.has_ext_modules = lambda: True
        super().initialize_options()

    def get_tag(self):
        platform = super().get_tag()[2]
        libraries = glob.glob(os.path.join(self.bdist_dir, "actmem", "*.so*"))
        system = manylinux(libraries) if libraries else None    # editable: none
        return "py3", "none", platform.replace("linux", system, 1) if system else platform
