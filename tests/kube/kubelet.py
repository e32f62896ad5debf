# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A stand-in of the kubelet: finds a driver by its socket, and has it prepare claims."""
import glob
import socket
import time

import grpc


def wait_for(happens, seconds=300):
    end = time.monotonic() + seconds
    while True:
        result = happens()
        if result:
            return result
        assert time.monotonic() < end, f"never happened: {happens}"
        time.sleep(0.05)


class Kubelet:
    """@messages: the modules of both .proto files."""

    def __init__(self, folder, registration, dra):
        self.folder = folder
        self.registration = registration
        self.dra = dra
        self.channel = None

    def call(self, channel, method, request, answer):
        return channel.unary_unary(method, request_serializer=type(request).SerializeToString,
                                   response_deserializer=answer.FromString)(request, timeout=120)

    def socket(self):
        sockets = glob.glob(f"{self.folder}/plugins_registry/*.sock")
        return sockets[0] if sockets else None

    def listening(self):
        """Not the socket that a killed driver has left: gRPC tries that one again ever later."""
        path = self.socket()
        with socket.socket(socket.AF_UNIX) as probe:
            return path if path and probe.connect_ex(path) == 0 else None

    def find(self, error=""):
        """Registers the driver, as the kubelet does with each socket that it finds, or refuses
        it. Returns how the driver has introduced itself."""
        path = wait_for(self.listening)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            grpc.channel_ready_future(channel).result(60)
            info = self.call(channel, "/pluginregistration.Registration/GetInfo",
                             self.registration.InfoRequest(), self.registration.PluginInfo)
            self.call(channel, "/pluginregistration.Registration/NotifyRegistrationStatus",
                      self.registration.RegistrationStatus(plugin_registered=not error,
                                                           error=error),
                      self.registration.RegistrationStatusResponse)
        if self.channel:
            self.channel.close()
        self.channel = grpc.insecure_channel(f"unix:{info.endpoint}")
        return info

    def ask(self, what, claims):
        request = getattr(self.dra, f"Node{what}ResourcesRequest")(
            claims=[self.dra.Claim(**claim) for claim in claims])
        answer = getattr(self.dra, f"Node{what}ResourcesResponse")
        answers = self.call(self.channel,
                            f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{what}Resources",
                            request, answer).claims
        assert sorted(answers) == sorted(claim["uid"] for claim in claims), answers
        return answers

    def prepare(self, *claims):
        return self.ask("Prepare", claims)

    def unprepare(self, *claims):
        return {uid: answer.error for uid, answer in self.ask("Unprepare", claims).items()}
