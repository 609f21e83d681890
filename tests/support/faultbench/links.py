"""Faults of links that every backend can inject, written as in an experiment file."""

from __future__ import annotations

from ackproof.network import kernel

LINK_FAULTS = (
    "cut: {link: follower(t/0) -> leader(t/0)}",
    "cut: {link: leader(t/0) -> controllers}",
    "cut: {link: clients -> leader(t/0)}",
    "isolate: {target: leader(t/0), from: peers}",
    "isolate: {target: leader(t/0), silent: true}",
    "detach: {target: leader(t/0)}",
    "split: {groups: [minority, majority]}",
    "bridge: {groups: [[1], [2]], over: broker(3)}",
    "black_hole: {link: followers(t/0) -> leader(t/0)}",
    "reset: {link: follower(t/0) -> leader(t/0), both_ways: true}",
    "throttle: {link: follower(t/0) -> leader(t/0), rate: 50KB/s}",
    "delay: {link: follower(t/0) -> leader(t/0), latency: 100ms, jitter: 20ms}",
    "slow_close: {link: follower(t/0) -> leader(t/0), delay: 500ms}",
    "flap: {link: follower(t/0) -> leader(t/0), down: 200ms, up: 300ms}",
)
PACKET_FAULTS = (
    "loss: {link: follower(t/0) -> leader(t/0), share: 30%}",
    "drop_large: {link: follower(t/0) -> leader(t/0), above: 600B}",
)
"""Faults of single packets, which need root."""


def tables_of(pid: int) -> list[str]:
    """Return the packet tables of the runs that this process drives; other processes may run too."""
    return [name for name in kernel.list_tables() if name.startswith(f"{kernel.PREFIX}{pid}_")]
