# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs the driver on a node until SIGTERM: python3 -m actmem_dra."""
import argparse
import os
import queue
import signal
import sys
import threading

from . import Refusal, machine, say
from .api import ACCOUNT, Api
from .claims import Claims
from .plugin import Plugin
from .slices import Slice


def parse():
    parser = argparse.ArgumentParser(prog="actmem_dra", description=__doc__)
    parser.add_argument("--node", default=os.environ.get("NODE_NAME"), metavar="NAME",
                        help="the cluster's name of this node (NODE_NAME)")
    parser.add_argument("--capacity", default=os.environ.get("ACTMEM_CAPACITY", ""),
                        metavar="NODE=SIZE,...", help="memory of each memory node for claims, such "
                        "as 0=448Gi,1=448Gi (ACTMEM_CAPACITY); default: the sizes of the pools")
    parser.add_argument("--device", action="store_true", help="also give containers /dev/actmem, "
                        "for regions without names, which a claim's size does not limit")
    parser.add_argument("--mounts", default="/run/actmem/kubernetes", metavar="FOLDER",
                        help="folder of the claims' mounts (%(default)s)")
    parser.add_argument("--cdi", default="/var/run/cdi", metavar="FOLDER",
                        help="folder of CDI files for the container runtime (%(default)s)")
    parser.add_argument("--kubelet", default="/var/lib/kubelet", metavar="FOLDER",
                        help="folder of the kubelet (%(default)s)")
    parser.add_argument("--account", default=ACCOUNT, metavar="FOLDER",
                        help="folder with token and CA for the API server (%(default)s)")
    parser.add_argument("--interval", type=float, default=60, metavar="SECONDS",
                        help="time between checks of the pools (%(default)s)")
    options = parser.parse_args()
    if not options.node:
        parser.error("the name of this node is missing: pass --node or set NODE_NAME")
    return options


def run(options):
    api = Api(options.account)
    node_slice = Slice(api, options.node, machine.parse_capacity(options.capacity))
    claims = Claims(options.mounts, options.cdi, options.device)
    plugin = Plugin(api, options.kubelet, options.node, claims, node_slice.capacity)
    ended = threading.Event()

    def end(_number, _frame):
        ended.set()
        plugin.changed.put(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    plugin.start()
    try:
        while not ended.is_set() and not plugin.refused:
            try:
                node_slice.publish()
            except Refusal as refusal:
                say(refusal)
            try:
                plugin.changed.get(timeout=options.interval)
            except queue.Empty:
                pass
    finally:
        plugin.stop()
    if plugin.refused:
        raise Refusal(plugin.refused)


def main():
    try:
        run(parse())
    except Refusal as refusal:
        sys.exit(f"actmem: {refusal}")


if __name__ == "__main__":
    main()
