"""Tests of packet rules: the text for nft, their marks, and the tables of harness processes that live or have ended."""

from __future__ import annotations

import os

import pytest

from ackproof.network import kernel
from ackproof.network.addresses import Address
from ackproof.network.kernel import PacketRules
from ackproof.network.mesh import Cut, Delay, LinkError, Loss


@pytest.fixture
def nft_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that gets each line for nft, which is not called."""
    lines: list[str] = []

    def run(words: list[str], *, enter: tuple[str, ...] = (), stdin: str | None = None) -> str:
        lines.extend((stdin or " ".join(words)).splitlines())
        return '{"nftables": []}'

    monkeypatch.setattr(kernel, "run_nft", run)
    return lines


def test_the_frame_is_laid_once(nft_lines: list[str]) -> None:
    rules = PacketRules("t")
    rules.lay("a", [Address("127.1.51.2", 9092)], Loss(0.25))
    rules.lay("b", [Address("127.1.51.3", 9092)], Cut())
    assert sum(line.startswith("add table") for line in nft_lines) == 1
    laid = [line for line in nft_lines if line.startswith("add rule")]
    assert len(laid) == 4
    assert (
        'ip daddr 127.1.51.2 tcp dport 9092 numgen random mod 1000 < 250 counter drop comment "a"' in laid[0]
    )
    assert "ip saddr 127.1.51.2 tcp sport 9092" in laid[1]
    assert all(
        line.startswith("add rule inet t outgoing ip ") for line in laid
    )  # both ways are sent from here
    assert all("reject with tcp reset" in line and "tcp flags & rst == 0x0" in line for line in laid[2:])


def test_all_packets_are_lost_without_dice(nft_lines: list[str]) -> None:
    PacketRules("t", ("nsenter", "-t", "7", "-n")).lay("a", [Address("10.0.0.2", 9092)], Loss(1.0))
    laid = [line for line in nft_lines if line.startswith("add rule")]
    assert all("numgen" not in line and "counter drop" in line for line in laid)
    assert "add rule inet t outgoing ip daddr" in laid[0]
    assert "add rule inet t incoming ip saddr" in laid[1]


def test_what_needs_a_queue_is_no_rule(nft_lines: list[str]) -> None:
    with pytest.raises(LinkError, match="no packet rule does this"):
        PacketRules("t").lay("a", [Address("10.0.0.2", 1)], Delay(0.1))
    assert not nft_lines


def test_rules_that_cannot_be_looked_for_do_not_count_as_removed(
    nft_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = PacketRules("t")
    rules.lay("a", [Address("127.1.51.2", 9092)], Cut())

    def refuse(*_: object, **__: object) -> str:
        raise LinkError("nft does not answer")

    monkeypatch.setattr(kernel, "run_nft", refuse)
    with pytest.raises(LinkError, match="does not answer"):
        rules.end()
    assert kernel.list_tables() == []


def test_a_table_is_that_of_a_living_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = kernel.table_name("20261121T1-x")
    dead = mine.replace(str(os.getpid()), str(2**22 + 5))
    monkeypatch.setattr(kernel, "list_tables", lambda: [mine, dead, "ackproof_somebody"])
    assert kernel.find_orphaned_tables() == [dead]
    assert mine.endswith("_20261121T1_x")
