"""Clients of a ledger: the list in `case.json`, and each client's ledger parts compared with its `_END`.

A client that closes writes the file `_END`, which lists its parts with their digests. An empty `_END` lists none: then
no part is compared. Other tools write the client list in other shapes, so it may be: a list of objects with `id` (or
`client`, `name`) and an optional `producer`; a list of strings; an object from id to such an object, to a producer's
number, or to null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.rundir.parts import SHARE, PartEnd
from ackproof.rundir.payload import Keys

if TYPE_CHECKING:
    from pydantic import JsonValue


@dataclass(frozen=True)
class ListedClient:
    """A client that `case.json` lists.

    `producer`: its number in the ledgers; None for readers, or if the file has no number. `killed`: True if a fault
    killed it, and the harness saved the rows that it had left (its journal) to its ledger. Only then may the ledger
    lack the file `_END`. `final_committed`: True for the final reader at read_committed. `keys`: keys of its records;
    None: the records have none.
    """

    id: str
    producer: int | None
    killed: bool = False
    final_committed: bool = False
    keys: Keys | None = None


def read_clients(path: Path) -> tuple[list[ListedClient], list[str]]:
    """Return the producers and readers of `case.json`, without group members, and the reasons why the file or single
    entries cannot be understood. Raises nothing."""
    clients: list[ListedClient] = []
    try:
        document: JsonValue = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return clients, [f"case.json: cannot be read ({str(error).splitlines()[0]})"]
    if not isinstance(document, dict):
        return clients, ["case.json: not an object"]
    listed = document.get("clients")
    if listed is None:
        listed = []
    entries: list[tuple[JsonValue, JsonValue]]
    if isinstance(listed, dict):
        entries = list(listed.items())
    elif isinstance(listed, list):
        entries = [(None, entry) for entry in listed]
    else:
        return clients, ["case.json: `clients` is neither a list nor an object"]
    problems: list[str] = []
    for key, entry in entries:
        if isinstance(entry, dict) and entry.get("kind") == "member":
            continue  # a member of a consumer group has ledgers of its own (`rundir.groups`)
        client = _parse_client(key, entry)
        if client is None:
            problems.append(f"case.json: a client without an id: {json.dumps(entry)[:80]}")
        else:
            clients.append(client)
    return clients, problems


def _parse_client(key: JsonValue, entry: JsonValue) -> ListedClient | None:
    plain: dict[str, JsonValue] = {"producer": entry} if isinstance(key, str) else {"id": entry}
    fields = entry if isinstance(entry, dict) else plain
    names = (key, *(fields.get(field) for field in ("id", "client", "name")))
    name = next((name for name in names if name is not None), None)
    producer = fields.get("producer")
    if isinstance(name, bool) or not isinstance(name, str | int):
        return None
    number = producer if isinstance(producer, int) and not isinstance(producer, bool) else None
    count, every = (fields.get(field) for field in ("keys", "tombstone_every"))
    keys = None
    if isinstance(count, int) and count > 0:
        keys = Keys(count, every if isinstance(every, int) else 0)
    committed = fields.get("kind") == "final" and fields.get("isolation") == "read_committed"
    return ListedClient(str(name), number, fields.get("killed") is True, committed, keys)


def compare_with_end(end: Sequence[PartEnd], found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name, difference) for each part that is missing, not listed or changed.

    `end`: parts that the client listed in its file `_END` when it closed, with their SHA-256. `found`: SHA-256 of each
    part in the folder, by name.
    """
    listed = {part.name: part for part in end}
    for part in end:
        if part.name not in found:
            moved = next((name for name, sha256 in found.items() if sha256 == part.sha256), None)
            where = f"; {moved} is the same file" if moved else ""
            yield part.name, f"_END lists {part}, which is missing{where}"
    for name, sha256 in found.items():
        if name not in listed:
            same = next((part.name for part in end if part.sha256 == sha256), None)
            yield name, "not listed in _END, not counted" + (f"; same file as {same}" if same else "")
        elif sha256 != listed[name].sha256:
            yield name, f"differs from _END ({listed[name]}), not counted"


def find_hole(spans: Iterable[tuple[int, int, int]]) -> str | None:
    """Return the first gap, overlap or wrong count in the row numbers of a client, as text; None if there is none.

    `spans`: (first number, last number, number of rows) of each part that has rows. Numbers count from 0.
    Processes that share a final read each begin at a multiple of `SHARE`. Rows without a number (-1) are
    skipped.
    """
    expected = 0
    for first, last, rows in sorted(spans):
        if first < 0:
            continue  # parts of other tools may have a footer without statistics
        if first != expected and (first % SHARE or first < expected):
            return (
                f"its rows {expected:,} to {first - 1:,} are in no part"
                if first > expected
                else f"its rows from {first:,} on occur twice"
            )
        if last - first + 1 != rows:
            return f"{rows:,} rows are numbered {first:,} to {last:,}"
        expected = last + 1
    return None
