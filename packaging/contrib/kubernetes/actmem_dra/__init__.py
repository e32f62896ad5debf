# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A driver for Kubernetes' Dynamic Resource Allocation: a claim of memory is a mounted actmem
file system of that size, which the claim's pods have.

Read first `claims`, which makes and removes mounts; `machine` is what the node has of memory,
`slices` tells the cluster of it, `api` asks the API server, `plugin` answers the kubelet.
Nothing is kept but the mounts and the files for the container runtime, so that a restart finds
what there is."""

# What the cluster knows the driver by, and CDI its devices. `internal` is the top-level domain
# for private use: the project has no domain of its own.
DRIVER = "memory.actmem.internal"


def say(text):
    print(f"actmem: {text}", flush=True)


class Refusal(Exception):
    """Its text appears in the pod's events."""
