"""The list of clients in `case.json`, read leniently: other tools write it in other shapes.

Understood: a list of objects with `id` (or `client`, `name`) and perhaps `producer`; a list of strings; an object
from id to such an object, to a producer's number, or to nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.rundir.payload import Keys

if TYPE_CHECKING:  # Spark's workers import this module, and pydantic would cost each of them 0.1 s
    from pydantic import JsonValue


@dataclass(frozen=True)
class ListedClient:
    """A client that `case.json` lists. `producer` is its number in the ledgers if the file says it."""

    id: str
    producer: int | None
    killed: bool = False
    """A fault killed it, and all that it had sent was salvaged: that it left no END is as it should be."""
    final_committed: bool = False
    """It is the final reader at read_committed."""
    keys: Keys | None = None
    """Those of its records; None: they have none."""


@dataclass(frozen=True)
class ListedClients:
    """What `case.json` says of the clients; `problems` makes the directory incomplete."""

    clients: tuple[ListedClient, ...] = ()
    problems: tuple[str, ...] = ()


def read_clients(path: Path) -> ListedClients:
    """Never raises: what cannot be understood is a problem."""
    try:
        document: JsonValue = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return ListedClients(problems=(f"case.json: cannot be read ({str(error).splitlines()[0]})",))
    if not isinstance(document, dict):
        return ListedClients(problems=("case.json: not an object",))
    listed = document.get("clients")
    if listed is None:
        return ListedClients()
    entries: list[tuple[JsonValue, JsonValue]]
    if isinstance(listed, dict):
        entries = list(listed.items())
    elif isinstance(listed, list):
        entries = [(None, entry) for entry in listed]
    else:
        return ListedClients(problems=("case.json: `clients` is neither a list nor an object",))
    clients: list[ListedClient] = []
    problems: list[str] = []
    for key, entry in entries:
        client = _client(key, entry)
        if client is None:
            problems.append(f"case.json: a client without an id: {json.dumps(entry)[:80]}")
        else:
            clients.append(client)
    return ListedClients(tuple(clients), tuple(problems))


def _client(key: JsonValue, entry: JsonValue) -> ListedClient | None:
    plain: dict[str, JsonValue] = {"producer": entry} if isinstance(key, str) else {"id": entry}
    told = entry if isinstance(entry, dict) else plain
    names = (key, *(told.get(field) for field in ("id", "client", "name")))
    name = next((name for name in names if name is not None), None)
    producer = told.get("producer")
    if isinstance(name, bool) or not isinstance(name, str | int):
        return None
    number = producer if isinstance(producer, int) and not isinstance(producer, bool) else None
    count, every = (told.get(field) for field in ("keys", "tombstone_every"))
    keys = (
        Keys(count, every if isinstance(every, int) else 0) if isinstance(count, int) and count > 0 else None
    )
    committed = told.get("kind") == "final" and told.get("isolation") == "read_committed"
    return ListedClient(str(name), number, told.get("killed") is True, committed, keys)
