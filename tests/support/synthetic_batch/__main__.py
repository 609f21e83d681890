"""Makes a batch folder with its reports, to look at.

`PYTHONPATH=tests/support python -m synthetic_batch FOLDER [FLAG…]`. Flags: `hostile`: names that try to inject markup.
`missing`: files are absent. `huge`: 60,000 findings of each of two classes. `group`: a single case, with a consumer
group. `fail`: the last case has FAIL."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ackproof.rundir.outcome import Verdict
from synthetic_batch import hostile, make_batch, matrix, missing


def main() -> None:
    from ackproof_reports import render_batch

    folder, flags = Path(sys.argv[1]), set(sys.argv[2:])
    recipes = hostile() if "hostile" in flags else missing() if "missing" in flags else matrix()
    if "huge" in flags:
        recipes[2] = replace(recipes[2], findings={"duplicate": 60_000, "surfaced": 60_000})
    if "group" in flags:
        recipes = [replace(recipes[5], group=True)]
    if "fail" in flags:
        reason = (
            "lost: 37 acknowledged records. Forbidden: acks=all on 2 in-sync replicas, unclean election off"
        )
        recipes[-1] = replace(
            recipes[-1], lost=37, verdict=Verdict.FAIL, forbidden=("lost",), reasons=(reason,)
        )
    render_batch(make_batch(folder, recipes))


if __name__ == "__main__":
    main()
