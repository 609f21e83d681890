"""A search on disk: to go on with it later, or elsewhere.

The file holds a pickled header (the model's values, widths, findings, how far it is), then every packed state in the
order in which it was found, then the place of each one's parent in that order. Load only files of your own: the header
is a pickle.
"""

from __future__ import annotations

import os
import pickle
from array import array
from pathlib import Path

from ackproof_reference.explore.cells import Cells, places_of_parents
from ackproof_reference.explore.model import Model
from ackproof_reference.explore.search import Search

_FORMAT = 5


def save(search: Search, path: Path, of: str) -> None:
    """Write a search; the file is replaced only when it is whole. `of` says of which world and which rules it is."""
    cells = search.cells
    width = (sum(cells.widths) + 7) // 8
    parents = places_of_parents(search.seen)
    header = {
        "format": _FORMAT,
        "of": of,
        "values": cells.values,
        "widths": cells.widths,
        "states": len(search.seen),
        "waiting": len(search.level) - search.place,
        "next": len(search.next_level),
        "ahead": search.ahead,
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


def load(model: Model, path: Path, of: str) -> Search:
    """A saved search of the same model, ready to go on. Raises ValueError if it is of another one: with other rules
    the same states would have other ways out of them."""
    with path.open("rb") as file:
        header = pickle.load(file)
        if header["format"] != _FORMAT or header["of"] != of:
            raise ValueError("it holds a search of another world, or one that another version began")
        cells = Cells(model, header["widths"])
        for cell, values in enumerate(header["values"]):
            for value in values:
                cells.number(cell, value)
        width, count = (sum(cells.widths) + 7) // 8, header["states"]
        states = [int.from_bytes(file.read(width), "little") for _ in range(count)]
        parents = array("Q")
        parents.fromfile(file, count)
    search = Search(model, header["wanted"])
    search.cells = cells
    search.findings, search.progress = header["findings"], header["progress"]
    search.restore(states, parents, header["waiting"], header["next"], header["ahead"])
    return search
