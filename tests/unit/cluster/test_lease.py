"""Tests of leases of address blocks, for which real processes compete."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.network import addresses as lease
from leases import lease_holders

NODES = (1, 2, 101)
HOLD = """
import sys
from pathlib import Path
from ackproof.network import addresses as lease
held = [lease.acquire_lease((1, 2), holder=f"pid", state=Path(sys.argv[1])) for _ in range(int(sys.argv[2]))]
print(" ".join(str(one.addresses.block) for one in held), flush=True)
sys.stdin.read()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_two_leases_of_one_process_differ(tmp_path: Path) -> None:
    with (
        lease.acquire_lease(NODES, holder="a", state=tmp_path) as one,
        lease.acquire_lease(NODES, holder="b", state=tmp_path) as two,
    ):
        assert one.addresses.block != two.addresses.block
        assert lease_holders(tmp_path) == {one.addresses.block: "a", two.addresses.block: "b"}
    assert lease_holders(tmp_path) == {}


def test_other_state_folders_share_no_block_either(tmp_path: Path, start: Start) -> None:
    """Other users and test sessions have other state folders, but the addresses belong to the machine."""
    holders = [start(sys.executable, "-c", HOLD, str(tmp_path / name), "4") for name in ("a", "b", "c")]
    blocks = [int(word) for holder in holders for word in holder.stdout.readline().split()]
    assert len(blocks) == 12
    assert len(set(blocks)) == 12


def test_processes_never_share_a_block(tmp_path: Path, start: Start) -> None:
    holders = [start(sys.executable, "-c", HOLD, str(tmp_path), "6") for _ in range(3)]
    blocks = [int(word) for holder in holders for word in holder.stdout.readline().split()]
    assert len(blocks) == 18
    assert len(set(blocks)) == 18


def test_a_killed_holder_frees_its_blocks(tmp_path: Path, start: Start) -> None:
    holder = start(sys.executable, "-c", HOLD, str(tmp_path), "2")
    holder.stdout.readline()
    assert len(lease_holders(tmp_path)) == 2
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lease_holders(tmp_path) == {}


def test_a_lease_lives_as_long_as_a_child_that_inherited_it(tmp_path: Path, start: Start) -> None:
    one = lease.acquire_lease(NODES, holder="harness", state=tmp_path)
    child = start("cat", pass_fds=(one.descriptor,))
    bystander = start("cat")
    one.release()
    assert lease_holders(tmp_path) == {one.addresses.block: "harness"}
    child.kill()
    child.wait()
    assert lease_holders(tmp_path) == {}
    assert bystander.poll() is None


def test_a_block_comes_again_only_after_all_others(tmp_path: Path) -> None:
    seen = []
    for _ in range(4):
        with lease.acquire_lease(NODES, holder="", state=tmp_path) as one:
            seen.append(one.addresses.block)
    assert len(set(seen)) == 4


def test_an_address_in_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BLOCKS", range(200, 202))
    with lease.acquire_lease(NODES, holder="", state=tmp_path) as first:
        taken = [first.addresses.client(2)]
        for base in lease._base_ports()[1:]:
            taken.append(taken[0]._replace(port=base + 2))
    listeners = [_listen(address) for address in taken]
    try:
        with lease.acquire_lease(NODES, holder="", state=tmp_path / "other") as second:
            assert second.addresses.block != first.addresses.block
    finally:
        for listener in listeners:
            listener.close()


def test_a_stranger_on_one_port_of_all_addresses_costs_only_that_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ports of this test alone: a real cluster on any block keeps a stranger from taking all addresses.
    monkeypatch.setattr(lease, "_BASE_PORTS", (31292, 31192))
    with lease.acquire_lease(NODES, holder="", state=tmp_path) as first:
        port = first.addresses.internal_port
    stranger = _listen(("0.0.0.0", port))
    try:
        with lease.acquire_lease(NODES, holder="", state=tmp_path) as second:
            ports = {address.port for address in second.addresses.listening(NODES)}
            assert port not in ports
    finally:
        stranger.close()


def test_when_nothing_is_free_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BLOCKS", range(210, 212))
    with (
        lease.acquire_lease(NODES, holder="", state=tmp_path),
        lease.acquire_lease(NODES, holder="", state=tmp_path),
        pytest.raises(BadInput, match="ackproof clean"),
    ):
        lease.acquire_lease(NODES, holder="", state=tmp_path)


def test_a_loopback_that_is_down_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Down(socket.socket):  # as in `unshare --net`, where one can bind and listen all the same
        def connect(self, address: object) -> None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", Down)
    with pytest.raises(BadInput, match=r"Network is unreachable.*ip link set lo up"):
        lease.acquire_lease(NODES, holder="", state=tmp_path)


def test_node_ids_must_be_octets(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="from 1 to 204, not 205"):
        lease.acquire_lease((1, 205), holder="", state=tmp_path)


def test_ports_stay_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port + 2 < lowest for port in lease._base_ports())


def test_the_state_directory_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert lease.state_directory() == tmp_path / "ackproof"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert lease.state_directory() == Path.home() / ".local/state/ackproof"


def _listen(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.listen()
    return listener
