# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The API server, as a pod's service account sees it: HTTPS and JSON."""
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request

from . import Refusal

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
RESOURCES = "/apis/resource.k8s.io/v1"
TIMEOUT_SECONDS = 30


class Api:
    """@account: a folder with the token, which the kubelet renews, and the server's CA."""

    def __init__(self, account=ACCOUNT):
        try:
            host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
        except KeyError as error:
            raise Refusal(f"{error.args[0]} is not set: this runs in a pod") from None
        self.url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.account = account
        self.tls = ssl.create_default_context(cafile=f"{account}/ca.crt")

    def ask(self, method, path, body=None):
        """The answer, or None where there is no such object."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with open(f"{self.account}/token", encoding="ascii") as file:
                headers = {"Authorization": f"Bearer {file.read().strip()}",
                           "Accept": "application/json", "Content-Type": "application/json"}
            request = urllib.request.Request(self.url + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS,
                                        context=self.tls) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            if error.code == 404:
                return None
            raise Refusal(f"the API server answers {method} {path} with {error.code}: "
                          f"{message_of(text)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Refusal(f"the API server does not answer {method} {path}: {error}") from None


def message_of(text):
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text[:200]
