"""Test that docs/claims.md and experiments/claims have the same claims, each with one answer."""

from __future__ import annotations

import re
from pathlib import Path

from ackproof.plan import load

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| (C\d\d) \| ([^|]+) \| (.+) \| (\w+) \| \[.*\]\(\.\./experiments/claims/(.+)\) \|\n")


def test_the_page_has_every_sentence_and_who_answers_it() -> None:
    page = {
        name: (sources.split(), says.replace("`", "").lower(), file)
        for name, sources, says, _, file in ROW.findall((ROOT / "docs" / "claims.md").read_text("utf-8"))
    }
    assert len(page) == 50
    answered = {}
    for file in sorted((ROOT / "experiments" / "claims").glob("*.yaml")):
        for name, claim in load(file).spec.claims.items():
            assert name not in answered
            answered[name] = (list(claim.sources), claim.says.removesuffix(".").lower(), file.name)
    assert answered == page
