"""Packet rules of the kernel (nft), in a table that belongs to one run and is removed by its name.

Needs root. The ruleset of others is never touched: rules come and go by their handles in our own table.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackproof.errors import BadInput
from ackproof.network.failure import LinkError
from ackproof.network.mesh import BlackHole, Cut, DropLarge, Effect, Loss
from ackproof.processes import is_alive, started
from ackproof.provision.nft import find_nft

TIMEOUT_S: Final = 10.0
PREFIX: Final = "ackproof_"
_CHAIN: Final = "links"
_NAME: Final = re.compile(rf"{PREFIX}([0-9]{{1,9}})_([0-9]{{1,18}})_")


def table_of(run_id: str) -> str:
    """The name of the table of a run that the present process drives: its owner stands in it."""
    owner = os.getpid()
    return f"{PREFIX}{owner}_{started(owner)}_" + re.sub(r"[^A-Za-z0-9]", "_", run_id)


def run_nft(words: Sequence[str], *, enter: Sequence[str] = (), stdin: str | None = None) -> str:
    """Call nft (`enter`: a command in front of it that enters a namespace). Raises `LinkError` with its words."""
    argv = [*enter, str(find_nft()), *words]
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"nft: {error}") from error
    if done.returncode != 0:
        raise LinkError(f"nft {' '.join(words)}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


@dataclass(frozen=True)
class Stream:
    """The packets to a listening address and back: those of every connection that is made to it."""

    host: str
    port: int

    def matches(self) -> tuple[str, str]:
        """The two directions, in nft's words."""
        return (
            f"ip daddr {self.host} tcp dport {self.port}",
            f"ip saddr {self.host} tcp sport {self.port}",
        )


@dataclass
class PacketRules:
    """The rules of one run in one network namespace. `enter`: a command that enters it ("nsenter", …)."""

    table: str
    enter: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: bool = False

    def lay(self, mark: str, streams: Iterable[Stream], effect: Effect) -> None:
        """Add rules that carry `mark` as their comment. Raises `LinkError`."""
        action = _action(effect)
        lines = [
            f'add rule inet {self.table} {_CHAIN} {match} {action} comment "{mark}"'
            for stream in streams
            for match in stream.matches()
        ]
        with self._lock:
            if not self._made:
                lines = [*self._frame(), *lines]
            self._run(["-f", "-"], "\n".join(lines) + "\n")
            self._made = True

    def remove(self, mark: str) -> None:
        """Remove the rules with this mark."""
        with self._lock:
            handles = [handle for handle, comment in self._rules() if comment == mark]
            if handles:
                lines = [f"delete rule inet {self.table} {_CHAIN} handle {handle}" for handle in handles]
                self._run(["-f", "-"], "\n".join(lines) + "\n")

    def marks(self) -> dict[str, int]:
        """The marks that the kernel has rules for, and how many."""
        with self._lock:
            found: dict[str, int] = {}
            for _, comment in self._rules():
                found[comment] = found.get(comment, 0) + 1
            return found

    def end(self) -> None:
        """Remove the table, if it was made."""
        with self._lock:
            if self._made:
                remove_table(self.table, self.enter)
                self._made = False

    def _frame(self) -> list[str]:
        return [
            f"add table inet {self.table}",
            f"add chain inet {self.table} {_CHAIN} {{ type filter hook output priority 0; policy accept; }}",
        ]

    def _rules(self) -> list[tuple[int, str]]:
        """Handle and comment of each rule."""
        if not self._made:
            return []
        listed = json.loads(self._run(["-j", "list", "table", "inet", self.table]))
        return [
            (entry["rule"]["handle"], entry["rule"].get("comment", ""))
            for entry in listed["nftables"]
            if "rule" in entry
        ]

    def _run(self, words: Sequence[str], stdin: str | None = None) -> str:
        return run_nft(words, enter=self.enter, stdin=stdin)


def tables(enter: Sequence[str] = ()) -> list[str]:
    """The tables of ackproof's runs that the kernel has now; empty where nft cannot be used."""
    try:
        listed = json.loads(run_nft(["-j", "list", "tables"], enter=enter))
    except (BadInput, LinkError):
        return []
    return [
        entry["table"]["name"]
        for entry in listed["nftables"]
        if "table" in entry and entry["table"]["name"].startswith(PREFIX)
    ]


def left_behind() -> list[str]:
    """The tables of runs whose harness is dead."""
    return [
        name
        for name in tables()
        if (match := _NAME.match(name)) and not is_alive(int(match[1]), int(match[2]))
    ]


def remove_table(table: str, enter: Sequence[str] = ()) -> None:
    """Remove a table by its name, with all that is in it. Nothing happens when it is not there."""
    if table in tables(enter):
        run_nft(["delete", "table", "inet", table], enter=enter)


def _action(effect: Effect) -> str:
    match effect:
        case Loss(share) if share > 0.9995:
            return "counter drop"
        case Loss(share):
            return f"numgen random mod 1000 < {max(1, round(share * 1000))} counter drop"
        case DropLarge(above):
            return f"meta length > {above} counter drop"
        case BlackHole():
            return "counter drop"
        case Cut():
            return "counter reject with tcp reset"
        case _:
            raise LinkError(f"no packet rule does this: {effect}")
