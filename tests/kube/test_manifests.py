# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The manifests of packaging/contrib/kubernetes: against the schemas of each release of Kubernetes that
has what they need, and against the driver that they start. Prints TAP."""
import glob
import os
import re
import sys

import kubernetes_validate
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KUBE = os.path.join(ROOT, "packaging", "contrib", "kubernetes")
sys.path[:0] = [os.path.join(ROOT, "tests", "tools"), os.path.join(ROOT, "build", "kube")]

from actmem_dra import DRIVER  # noqa: E402
from actmem_dra.__main__ import parse  # noqa: E402
from tap import case, main  # noqa: E402

# The first with resource.k8s.io/v1, the first with claims by size, and today's.
RELEASES = ("1.34", "1.36", "1.37")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def documents():
    return [(f"{os.path.basename(path)}: {body['kind']}", body)
            for path in sorted(glob.glob(f"{KUBE}/*.yaml"))
            for body in yaml.safe_load_all(read(path))]


def one(kind, name="actmem-driver"):
    body, = [body for _, body in documents()
             if body["kind"] == kind and body["metadata"]["name"] == name]
    return body


def containers():
    return [(name, body["spec"]["template"]["spec"], container) for name, body in documents()
            if body["kind"] == "DaemonSet"
            for container in body["spec"]["template"]["spec"]["containers"]]


@case
def each_release_knows_all_of_their_fields():
    assert len(documents()) >= 11, documents()
    for name, body in documents():
        for release in RELEASES:
            try:
                kubernetes_validate.validate(body, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise AssertionError(f"{name}, {release}: {error.message}") from None


@case
def folders_have_the_same_path_on_the_node_and_in_the_driver():
    os.environ["NODE_NAME"] = "a-node"
    sys.argv[1:] = []
    options = parse()
    _, pod, container = next(item for item in containers() if item[2]["name"] == "driver")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert {mount["mountPath"]: paths[mount["name"]] for mount in container["volumeMounts"]} == {
        path: path for path in (f"{options.kubelet}/plugins/{DRIVER}", options.mounts, options.cdi,
                                f"{options.kubelet}/plugins_registry", "/dev")}, container
    shared = [mount["mountPath"] for mount in container["volumeMounts"]
              if mount.get("mountPropagation") == "Bidirectional"]
    assert shared == [options.mounts] and container["securityContext"]["privileged"], container
    assert [part["valueFrom"]["fieldRef"]["fieldPath"] for part in container["env"]
            if part["name"] == "NODE_NAME"] == ["spec.nodeName"], container
    exporter = next(item[2] for item in containers() if item[2]["name"] == "exporter")
    assert {mount["mountPath"]: mount.get("mountPropagation")
            for mount in exporter["volumeMounts"]} == {"/dev": None,
                                                       options.mounts: "HostToContainer"}, exporter


@case
def names_that_have_to_be_the_same_are():
    selector, = one("DeviceClass", DRIVER)["spec"]["selectors"]
    assert selector["cel"]["expression"] == f'device.driver == "{DRIVER}"', selector
    binding, account = one("ClusterRoleBinding"), one("ServiceAccount")
    assert binding["roleRef"]["name"] == one("ClusterRole")["metadata"]["name"], binding
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account["metadata"]}], binding
    pod = one("DaemonSet")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"], pod
    for name, body in documents():
        if body["kind"] == "DaemonSet":
            template = body["spec"]["template"]
            assert body["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"], name
            assert body["metadata"]["namespace"] == one("Namespace", "actmem")["metadata"]["name"]
    classes = re.findall(r"deviceClassName: (\S+)", read(f"{KUBE}/examples.yaml"))
    assert set(classes) == {DRIVER, "gpu.nvidia.com"}, classes


@case
def images_are_those_of_this_version():
    version = read(os.path.join(ROOT, "VERSION")).strip()
    images = {container["image"] for _, _, container in containers()}
    assert images == {f"actmem:{version}"}, images
    assert f"actmem:{version} -f packaging/contrib/kubernetes/Dockerfile" in read(f"{KUBE}/Dockerfile")


if __name__ == "__main__":
    main()
