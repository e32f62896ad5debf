# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Containers with the devices of claims, by CDI files: of a stand-in, which starts at once and
shows what a file says, and of podman."""
import glob
import json
import os
import subprocess

# As a runtime does it, but for its own root: what is in /dev and /run/actmem of the container is
# what it is given.
CONTAINER = """set -e
root=$(mktemp -d /run/container.XXXXXX)
mount -t tmpfs none $root
mkdir $root/dev $root/source
for name in null zero urandom $DEVICES; do
    touch $root/dev/$name
    mount --bind /dev/$name $root/dev/$name
done
mount --bind $SOURCE $root/source
umount -l $(dirname $SOURCE)/*
mount -t tmpfs none /run/actmem
mkdir $TARGET
mount --move $root/source $TARGET
mount -o remount,bind,nosuid,nodev,noexec $TARGET
mount --rbind $root/dev /dev
umount -l $root
exec setpriv --reuid=65534 --regid=65534 --groups=65534$GIDS prlimit --memlock=65536 "$@"
"""
CDI_KEYS = {"cdiVersion", "kind", "containerEdits", "devices"}
EDIT_KEYS = {"env", "mounts", "deviceNodes", "additionalGids"}


def edits_of(cdi, ids):
    """What a container with these devices gets, once for each file."""
    edits = []
    for path in glob.glob(f"{cdi}/*.json"):
        with open(path, encoding="ascii") as file:
            spec = json.load(file)
        gids = "additionalGids" in spec["containerEdits"]
        assert set(spec) == CDI_KEYS and spec["cdiVersion"] == ("0.7.0" if gids else "0.5.0"), spec
        names = [name for kind, name in (text.split("=") for text in ids)
                 if kind == spec["kind"]]
        chosen = [device for device in spec["devices"] if device["name"] in names]
        if chosen:
            edits += [spec["containerEdits"], *(device["containerEdits"] for device in chosen)]
    assert all(edit and set(edit) <= EDIT_KEYS for edit in edits), edits
    assert edits, f"no file in {cdi} has {ids}"
    return edits


def container(cdi, ids, *command, **options):
    """Starts a process in one, as an unprivileged user with little memory to lock."""
    edits = edits_of(cdi, ids)
    mount, = [mount for edit in edits for mount in edit.get("mounts", [])]
    assert {"bind", "rw"} <= set(mount["options"]), mount
    environment = dict(text.split("=", 1) for edit in edits for text in edit.get("env", []))
    environment.update(
        PATH="/usr/sbin:/usr/bin:/sbin:/bin", SOURCE=mount["hostPath"],
        TARGET=mount["containerPath"],
        DEVICES=" ".join(os.path.basename(node["path"]) for edit in edits
                         for node in edit.get("deviceNodes", [])),
        GIDS="".join(f",{gid}" for edit in edits for gid in edit.get("additionalGids", [])))
    return subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                             CONTAINER, "container", *command], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **options)


def podman(ids, folder, programs, *command):
    """Runs it in a container of podman's, which reads CDI files in /run/cdi, as the same user
    with as little memory to lock. @folder: for what podman keeps, and the container's root, in
    which are this machine's /usr and the folder with the @programs. Returns what it says, and
    its status."""
    root = f"{folder}/root"
    for name in ("usr", "etc", "proc", "sys", "dev", "run", "tmp"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        os.symlink(f"usr/{name}", f"{root}/{name}")
    result = subprocess.run(
        ["podman", "--root", f"{folder}/containers", "--runroot", f"{folder}/running",
         "--network-config-dir", f"{folder}/networks", "--storage-driver", "vfs",
         "--cgroup-manager", "cgroupfs", "--events-backend", "none",
         "--runtime", "crun", "run", "--rm", "--network=none", "--cgroups=disabled",
         "--log-driver=none", "--user=65534:65534", "--ulimit=memlock=65536:65536",
         "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
         "-v=/usr:/usr:ro", f"-v={programs}:{programs}:ro",
         *(f"--device={name}" for name in ids), "--rootfs", root, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": folder, "HOME": folder},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300, check=False)
    return result.stdout, result.returncode
