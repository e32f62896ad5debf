# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Secure Boot: firmware that trusts the test key of Debian's ovmf package.

The key is in the firmware's `db`, from which Debian's kernels take keys for
modules too. It is public: nothing but a test machine may ever trust it.
"""
import os
import shutil
import subprocess

CODE = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
VARIABLES = "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"
KEY = "/usr/share/ovmf/PkKek-1-snakeoil.key"
CERTIFICATE = "/usr/share/ovmf/PkKek-1-snakeoil.pem"


def missing():
    """What has to be installed here, in words, or None."""
    if not shutil.which("sbsign"):
        return "there is no sbsign; install sbsigntool"
    for path in (CODE, VARIABLES, KEY, CERTIFICATE):
        if not os.path.isfile(path):
            return f"there is no {path}; install ovmf"
    return None


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def sign_kernel(kernel, folder):
    """A copy of the kernel that the firmware starts; returns its path."""
    key, signed = f"{folder}/db.key", f"{folder}/vmlinuz"
    run("openssl", "rsa", "-in", KEY, "-passin", "pass:snakeoil", "-out", key)
    run("sbsign", "--key", key, "--cert", CERTIFICATE, "--output", signed, kernel)
    return signed


def firmware(folder):
    """The options of QEMU, in the place of -bios."""
    shutil.copyfile(VARIABLES, f"{folder}/variables")
    flash = "if=pflash,format=raw"
    return ["-global", "driver=cfi.pflash01,property=secure,value=on",
            "-drive", f"{flash},unit=0,readonly=on,file={CODE}",
            "-drive", f"{flash},unit=1,file={folder}/variables"]
