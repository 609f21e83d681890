"""What a client's folder holds against what its END says: nothing missing, doubled, renamed, shorter or of another run.

An empty END vouches for nothing, so nothing is held against it: ledgers of other tools are audited as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ackproof.rundir.parts import SHARE, PartEnd


def differing(end: Sequence[PartEnd], found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name of a part → what is wrong with it. `found`: the parts that are there, with the digest of each."""
    listed = {part.name: part for part in end}
    for part in end:
        if part.name not in found:
            moved = next((name for name, sha256 in found.items() if sha256 == part.sha256), None)
            where = f"; {moved} is the same file" if moved else ""
            yield part.name, f"END lists {part}, which is not there{where}"
    for name, sha256 in found.items():
        if name not in listed:
            same = next((part.name for part in end if part.sha256 == sha256), None)
            yield (
                name,
                "not among the parts that END lists, not counted" + (f"; it is {same} again" if same else ""),
            )
        elif sha256 != listed[name].sha256:
            yield name, f"not the file of which END says: {listed[name]}; not counted"


def hole(spans: Iterable[tuple[int, int, int]]) -> str | None:
    """What is wrong with the numbers of a client's rows, which count from 0 (or a SHARE) without holes.

    `spans`: first, last and rows of each part that has rows.
    """
    expected = 0
    for first, last, rows in sorted(spans):
        if first < 0:
            continue  # a footer without statistics: parts of other tools
        if first != expected and (first % SHARE or first < expected):
            return (
                f"its rows {expected:,} to {first - 1:,} are in no part"
                if first > expected
                else f"its rows from {first:,} on are there twice"
            )
        if last - first + 1 != rows:
            return f"{rows:,} rows are numbered {first:,} to {last:,}"
        expected = last + 1
    return None
