"""Writes `pairs.json`, the pairs of faults that a sweep has covered, one pair per line.

    kept=tools/night/pairs/4.4.0
    ackproof pairs $kept runs/*-pairs --json | python tools/night/keep_pairs.py $kept/pairs.json

Reads the output of `ackproof pairs --json` from standard input, and writes the file named by its argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_RAN = ("covered", "not bitten")


def keep(document: str) -> str:
    """Return `pairs.json` from the output of `ackproof pairs --json`. Pairs that did not run have no case."""
    tables = []
    for table in json.loads(document)["tables"]:
        rows = [
            row if row["outcome"] in _RAN else {name: row[name] for name in ("kinds", "outcome")}
            for row in table.pop("pairs")
        ]
        head = json.dumps(table)[:-1]
        tables.append(f'{head}, "pairs": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}")
    return '{"tables": [' + ",\n".join(tables) + "]}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(keep(sys.stdin.read()), encoding="utf-8")
