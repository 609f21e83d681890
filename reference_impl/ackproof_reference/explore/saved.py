"""A search on disk: to go on with it later, or elsewhere.

The file holds a pickled header (the model's values, widths, findings, how far it is), then every packed state in the
order in which it was found, then the place of each one's parent in that order. Parents come in the same order as their
children, for the search is breadth first, so both are written and read in one pass. Load only files of your own:
the header is a pickle.
"""

from __future__ import annotations

import os
import pickle
from array import array
from pathlib import Path

from ackproof_reference.explore.cells import Cells
from ackproof_reference.explore.search import Model, Search

_FORMAT = 1


def save(search: Search, path: Path) -> None:
    """Write a search; the file is replaced only when it is whole."""
    cells = search.cells
    width = (sum(cells.widths) + 7) // 8
    parents = array("Q")
    order = iter(search.seen)
    place, at = 0, next(order)
    for parent in search.seen.values():
        while at != parent:
            place, at = place + 1, next(order)
        parents.append(place)
    header = {
        "format": _FORMAT,
        "values": cells.values,
        "widths": cells.widths,
        "states": len(search.seen),
        "waiting": len(search.level) - search.place,
        "next": len(search.next_level),
        "findings": search.findings,
        "progress": search.progress,
        "wanted": search.wanted,
    }
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        pickle.dump(header, file)
        for state in search.seen:
            file.write(state.to_bytes(width, "little"))
        parents.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(model: Model, path: Path) -> Search:
    """A saved search of the same model, ready to go on. Raises ValueError if it is of another one."""
    with path.open("rb") as file:
        header = pickle.load(file)
        cells = Cells(len(model.names), header["widths"])
        if header["format"] != _FORMAT or len(header["values"]) != len(model.names):
            raise ValueError(f"{path} holds a search of another model")
        for cell, values in enumerate(header["values"]):
            for value in values:
                cells.number(cell, value)
        width, count = (sum(cells.widths) + 7) // 8, header["states"]
        states = [int.from_bytes(file.read(width), "little") for _ in range(count)]
        parents = array("Q")
        parents.fromfile(file, count)
    if cells.row(states[0]) != tuple(model.initial):
        raise ValueError(f"{path} holds a search that began elsewhere")
    search = Search(model, header["wanted"])
    search.cells = cells
    search.seen = {state: states[parent] for state, parent in zip(states, parents, strict=True)}
    # What still waits was found last: the rest of this level, then the next one.
    waiting, following = header["waiting"], header["next"]
    search.level = states[count - following - waiting : count - following]
    search.next_level = states[count - following :]
    search.findings, search.progress = header["findings"], header["progress"]
    search.renew()
    return search
