"""Packet rules (nft) and network namespaces of the kernel. Both need root.

The rules of a run are in a separate table, which is removed by its name. Rules of other programs are never touched.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from ackproof.base.errors import BadInput
from ackproof.base.processes import is_alive, started
from ackproof.network.addresses import Address
from ackproof.network.mesh import BlackHole, Cut, DropLarge, Effect, LinkError, Loss, Reset
from ackproof.provision.tools import find_nft

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
_CLONE_NEWNET: Final = 0x40000000
PREFIX: Final = "ackproof_"
INPUT: Final = "incoming"
OUTPUT: Final = "outgoing"
_REDIRECTED: Final = "redirected"
_DIRECT: Final = "direct"
_PRIORITIES: Final = ((OUTPUT, "output", -150), (INPUT, "input", 150), (_DIRECT, "output", 0))
"""Name, hook and priority of each chain. The kernel translates destinations at priority -100 and answers at 100. So the
chains see the addresses that the sender of a packet sees; the last chain sees the translated ones."""
_REJECT: Final = "tcp flags & rst == 0x0 counter reject with tcp reset"
"""Rule that resets a connection. It lets resets pass, also those that it sends itself."""
_TO_BE_RESET: Final = 60
"""Bytes of the largest packet of a TCP connection that carries no data: a SYN with its options."""
_NAME: Final = re.compile(rf"{PREFIX}([0-9]{{1,9}})_([0-9]{{1,18}})_")


def table_name(run_id: str) -> str:
    """Return the name of a run's nftables table. It contains this process's pid and start time.

    So a table whose harness is dead can be recognized later (`find_orphaned_tables`).
    """
    owner = os.getpid()
    return f"{PREFIX}{owner}_{started(owner)}_" + re.sub(r"[^A-Za-z0-9]", "_", run_id)


def run_nft(words: Sequence[str], *, enter: Sequence[str] = (), stdin: str | None = None) -> str:
    """Call nft with the arguments `words` and the input `stdin`, and return its output.

    Raises `LinkError` with nft's message, `MissingTool` without nft, `BadInput` without root. `enter`: a
    command that enters a network namespace (`nsenter …`); empty for this process's own.
    """
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


@dataclass
class PacketRules:
    """Packet rules (nftables) of one run in one network namespace. `table`: name of the nftables table.

    `enter`: a command that enters the namespace ("nsenter", …). Empty: the rules are in this machine's own namespace,
    where both ends of each connection are.
    """

    table: str
    enter: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: bool = False

    def lay(self, mark: str, addresses: Iterable[Address], effect: Effect) -> None:
        """Add rules that have this effect on open and new connections to these addresses.

        `mark`: a comment that identifies the rules, for `marks` and `remove`. Raises `LinkError`, also for an effect
        that no packet rule has; `MissingTool` without nft, `BadInput` without root.
        """
        action = _action(effect)
        back = (
            INPUT if self.enter else OUTPUT
        )  # see every packet once; if both ends are here, when it is sent
        rules: list[str] = []
        for host, port in addresses:
            rules.append(f'{OUTPUT} ip daddr {host} tcp dport {port} {action} comment "{mark}"')
            rules.append(f'{back} ip saddr {host} tcp sport {port} {action} comment "{mark}"')
        self._add(rules)

    def redirect(self, mark: str, address: Address, to: Address, *, through: Address | None = None) -> None:
        """Redirect new connections for `address` to `to`, by a rule that comes before all earlier rules. An open
        connection to `address` is reset at its next packet. Works only in a namespace that is entered (`enter`).

        `through`: address to which an earlier redirection sends connections for `address`; None without one. Open
        connections to `through` are reset too. `mark`: a comment that identifies the rules, for `marks` and `remove`.
        Raises as `lay` does.
        """
        self._add(
            [f'{_REDIRECTED} {_match_destination(address)} dnat ip to {to} comment "{mark}"'], first=True
        )
        present = [address] if through is None else [address, through]
        rules = [f"{_DIRECT} {_match_destination(target)} {_REJECT}" for target in present]
        self._add([f'{rule} comment "{mark}"' for rule in rules])

    def _add(self, rules: list[str], *, first: bool = False) -> None:
        lines = [f"{'insert' if first else 'add'} rule inet {self.table} {rule}" for rule in rules]
        with self._lock:
            if not self._made:
                chains = [
                    f"add chain inet {self.table} {name} {{ type filter hook {hook} priority {at}; policy accept; }}"
                    for name, hook, at in _PRIORITIES
                ]
                if self.enter:
                    nat = "type nat hook output priority -100; policy accept;"
                    chains.append(f"add chain inet {self.table} {_REDIRECTED} {{ {nat} }}")
                lines = [f"add table inet {self.table}", *chains, *lines]
            run_nft(["-f", "-"], enter=self.enter, stdin="\n".join(lines) + "\n")
            self._made = True

    def remove(self, mark: str) -> None:
        with self._lock:
            lines = [
                f"delete rule inet {self.table} {chain} handle {handle}"
                for chain, handle, comment in self._rules()
                if comment == mark
            ]
            if lines:
                run_nft(["-f", "-"], enter=self.enter, stdin="\n".join(lines) + "\n")

    def marks(self) -> Counter[str]:
        """Return how many packet rules the kernel has for each mark. Raises as `lay` does."""
        with self._lock:
            return Counter(comment for _, _, comment in self._rules())

    def end(self) -> None:
        """Remove the run's nftables table with all rules; do nothing if no rule was laid since the last call.
        Raises as `remove_table` does."""
        with self._lock:
            if self._made:
                remove_table(self.table, self.enter)
                self._made = False

    def _rules(self) -> list[tuple[str, int, str]]:
        """Return chain, handle and comment (the mark) of each rule in the run's nftables table."""
        if not self._made:
            return []
        listed = json.loads(run_nft(["-j", "list", "table", "inet", self.table], enter=self.enter))
        rules = [entry["rule"] for entry in listed["nftables"] if "rule" in entry]
        return [(rule["chain"], rule["handle"], rule.get("comment", "")) for rule in rules]


def list_tables() -> list[str]:
    """Return the names of all nftables tables that runs of ackproof have made in this process's network namespace;
    empty if nft cannot be used."""
    try:
        return _read_tables(())
    except (BadInput, LinkError):
        return []


def _read_tables(enter: Sequence[str]) -> list[str]:
    listed = json.loads(run_nft(["-j", "list", "tables"], enter=enter))
    return [
        entry["table"]["name"]
        for entry in listed["nftables"]
        if "table" in entry and entry["table"]["name"].startswith(PREFIX)
    ]


def find_orphaned_tables() -> list[str]:
    """Return the nftables tables in this network namespace that were left by runs whose harness process is dead."""
    return [
        name
        for name in list_tables()
        if (match := _NAME.match(name)) and not is_alive(int(match[1]), int(match[2]))
    ]


def remove_table(table: str, enter: Sequence[str] = ()) -> None:
    """Remove an nftables table with all its rules; do nothing if no table has this name. Raises like `run_nft`.
    `enter`: a command that enters the table's network namespace; empty for this process's own."""
    if table in _read_tables(enter):
        run_nft(["delete", "table", "inet", table], enter=enter)


def _match_destination(address: Address) -> str:
    return f"ip daddr {address.host} tcp dport {address.port}"


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
            return _REJECT
        case Reset():
            return f"meta length > {_TO_BE_RESET} {_REJECT}"
        case _:
            raise LinkError(f"no packet rule does this: {effect}")


class Namespaces:
    """Packet rules of one run in the network namespaces of its nodes. `table`: name of the nftables table.

    `pid` returns the process id of a node, by its id; None while it has no process.
    """

    def __init__(self, table: str, pid: Callable[[int], int | None]) -> None:
        self._table = table
        self._pid = pid
        self._known: dict[int, tuple[int, PacketRules]] = {}
        self._lock = threading.Lock()

    def rules(self, node: int) -> PacketRules | None:
        """Return the packet rules of a node's present namespace; None while the node has no process."""
        pid = self._pid(node)
        if pid is None:
            return None
        with self._lock:
            known = self._known.get(node)
            if known is None or known[0] != pid:
                known = pid, PacketRules(self._table, ("nsenter", "-t", str(pid), "-n"))
                self._known[node] = known
            return known[1]

    def run_in(self, node: int, act: Callable[[], T]) -> T:
        """Call `act` in the network namespace of a node, and return its result.

        Raises `LinkError` if the node has no process or its namespace cannot be entered, and what `act` raises.
        """
        pid = self._pid(node)
        if pid is None:
            raise LinkError(f"node {node} has no process")
        return run_in_namespace(pid, act)

    def end(self) -> None:
        """Remove the packet rules of the run in all namespaces. A namespace that has ended with its node needs no
        removal. If rules cannot be removed in some namespaces, raise the first `LinkError` after all namespaces were
        tried."""
        errors: list[LinkError] = []
        with self._lock:
            for node, (pid, rules) in self._known.items():
                try:
                    if self._pid(node) == pid:
                        rules.end()
                except LinkError as error:
                    if self._pid(node) == pid:
                        errors.append(error)
            self._known.clear()
        if errors:
            raise errors[0]


def run_in_namespace(pid: int, act: Callable[[], T]) -> T:
    """Call `act` on a thread that enters the network namespace of a process; return its result. Needs root.

    Sockets that `act` makes stay in that namespace. Raises `LinkError` if the namespace cannot be entered, and what
    `act` raises.
    """

    def enter_and_act() -> T:
        try:
            with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
        except OSError as error:
            raise LinkError(f"no way into the network namespace of process {pid}: {error}") from error
        return act()

    with ThreadPoolExecutor(1, f"netns-{pid}") as thread:
        return thread.submit(enter_and_act).result()
