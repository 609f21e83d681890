"""Tests of the mesh for nodes with network namespaces of their own, without Kafka: two namespaces that reach each other
and the host.

The witnesses of a run confirm each effect, and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackproof.base.errors import MissingTool
from ackproof.base.processes import RunTag
from ackproof.base.units import FROM_FILE
from ackproof.base.wait import wait_until
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.links.injection import BITES_WITHIN_S
from ackproof.faults.links.named import BlackHoleFault, CutFault, NamedLinkFault, ResetFault
from ackproof.faults.links.shaped import DelayFault, DropLargeFault, LossFault, SlowCloseFault, ThrottleFault
from ackproof.network import mesh as links
from ackproof.network.addresses import Address
from ackproof.network.kernel import Namespaces, run_in_namespace
from ackproof.network.mesh import Link
from ackproof.network.meshes import KernelMesh, MeshWiring
from ackproof.network.probe import kafka_question
from ackproof.network.toxiproxy import ProxyServer
from ackproof.provision.tools import toxiproxy_server

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are root's"),
    pytest.mark.skipif(shutil.which("ip") is None or shutil.which("nft") is None, reason="needs ip and nft"),
]

PORT = 9092
OWN = Path("/proc/self/ns/net").readlink()
HOST = "10.211.78.254"
SERVER = """
import socketserver, struct
class Answering(socketserver.StreamRequestHandler):
    def handle(self):
        while (head := self.rfile.read(4)):
            self.rfile.read(struct.unpack(">i", head)[0])
            self.wfile.write(struct.pack(">i", 200) + bytes(200))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("0.0.0.0", 9092), Answering).serve_forever()
"""


def sh(line: str) -> None:
    subprocess.run(line.split(), check=True, capture_output=True, timeout=20)


@dataclass
class TwoNodes:
    """Processes of nodes 1 and 2, each in a network namespace, at 10.211.77.1 and .2."""

    processes: dict[int, subprocess.Popen[bytes]]

    def links(self) -> frozenset[Link]:
        return frozenset({Link(1, 2), Link(2, 1)})

    def reaches(self, link: Link) -> tuple[Address, ...]:
        return (Address(f"10.211.77.{link.target}", PORT),)

    listens = reaches

    def is_zookeeper(self, link: Link) -> bool:
        return False

    def pid(self, node: int) -> int | None:
        return self.processes[node].pid


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelMesh]:
    prefix = f"ap{os.getpid() % 100000}"
    folder = tmp_path_factory.mktemp("links")
    with contextlib.ExitStack() as stack:
        processes = {}
        for node in (1, 2):
            process = subprocess.Popen(["unshare", "-n", sys.executable, "-c", SERVER])
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes[node] = process
            there = Path(f"/proc/{process.pid}/ns/net")
            wait_until(lambda p=there: p.readlink() != OWN, what="a namespace", timeout_s=10)  # type: ignore[misc]
            enter = f"nsenter -t {process.pid} -n"
            sh(f"ip link add {prefix}h{node} type veth peer name host netns {process.pid}")
            # A namespace outlives its processes while a connection of theirs is not over, and its links with it.
            stack.callback(sh, f"ip link del {prefix}h{node}")
            sh(f"ip addr add 10.211.{77 + node}.254/24 dev {prefix}h{node}")
            sh(f"ip link set {prefix}h{node} up")
            sh(f"{enter} ip addr add 10.211.{77 + node}.1/24 dev host")
            sh(f"{enter} ip link set host up")
            sh(f"{enter} ip link set lo up")
            sh(f"ip route add 10.211.77.{node} via 10.211.{77 + node}.1")
        one, two = (processes[node].pid for node in (1, 2))
        sh(f"nsenter -t {one} -n ip link add side type veth peer name side netns {two}")
        for node, process in processes.items():
            sh(f"nsenter -t {process.pid} -n ip addr add 10.211.77.{node}/24 dev side")
            sh(f"nsenter -t {process.pid} -n ip link set side up")
        try:
            binary = toxiproxy_server()
        except MissingTool as error:
            pytest.skip(str(error))
        tag = RunTag("kernel-links", folder, folder)
        server = ProxyServer(binary, Address(HOST, 8474), folder=folder, tag=tag)
        descriptor = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        nodes, table = TwoNodes(processes), "ackproof_test_kernel"
        made = KernelMesh(MeshWiring(server, {}, nodes, table), Namespaces(table, nodes.pid), HOST)
        made.start(descriptor)
        stack.callback(made.end)
        wait_until(
            lambda: all(made.probe(link).passed for link in made.links()), what="servers", timeout_s=20
        )
        yield made


def _on(kind: type[NamedLinkFault], **fields: object) -> NamedLinkFault:
    return kind.model_validate(
        {"number": 1, "trigger": TimeTrigger(0.0), "link": "broker(1) -> broker(2)", **fields},
        context=FROM_FILE,
    )


FAULTS = [
    _on(CutFault),
    _on(BlackHoleFault),
    _on(ResetFault),
    _on(LossFault, share="30%"),
    _on(DropLargeFault, above="600B"),
    _on(ThrottleFault, rate="49KB/s"),
    _on(DelayFault, latency="100ms", jitter="20ms"),
    _on(SlowCloseFault, delay="400ms"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_it_bites_one_link_only_and_is_lifted(mesh: KernelMesh, fault: NamedLinkFault) -> None:
    link = Link(1, 2)
    effect, before = fault.effect(), fault.look(mesh, link)
    assert before.passes, before
    assert mesh.imposed(link) == ()
    mesh.impose("me", link, effect)
    try:
        assert mesh.imposed(link)
        assert mesh.imposed(Link(2, 1)) == ()
        assert mesh.probe(Link(2, 1)).passed
        # One look may see nothing: where each answer is lost in turn none of the packets of whoever asks is.
        wait_until(
            lambda: fault.shows(before, fault.look(mesh, link)),
            what=f"{fault} to bite",
            timeout_s=BITES_WITHIN_S,
        )
    finally:
        mesh.lift("me", link)
    assert mesh.imposed(link) == ()
    wait_until(
        lambda: fault.is_mended(before, fault.look(mesh, link)), what=f"{link} to be whole", timeout_s=10
    )


def test_connections_that_there_are_break_too(mesh: KernelMesh) -> None:
    import socket

    line = run_in_namespace(
        mesh._sight.pid(1), lambda: socket.create_connection(("10.211.77.2", PORT), timeout=2)
    )
    with line:
        line.sendall(kafka_question(0, 0))
        assert line.recv(300)
        mesh.impose("me", Link(1, 2), links.Delay(0.2))
        try:
            began = time.monotonic()
            with pytest.raises(OSError):
                line.sendall(kafka_question(1, 0))
                if not line.recv(300):
                    raise ConnectionResetError
            assert time.monotonic() - began < 1
        finally:
            mesh.lift("me", Link(1, 2))


def test_two_owners_of_one_link(mesh: KernelMesh) -> None:
    link = Link(1, 2)
    mesh.impose("one", link, links.Delay(0.05))
    mesh.impose("two", link, links.Cut())
    try:
        assert mesh.probe(link).how == "refused" or not mesh.probe(link).passed
        mesh.lift("two", link)
        assert mesh.probe(link).seconds > 0.09
    finally:
        mesh.lift("two", link)
        mesh.lift("one", link)
    assert mesh.probe(link).passed
    assert mesh.imposed(link) == ()
