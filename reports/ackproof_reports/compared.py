"""The page of `ackproof compare`: no script, no network, both themes."""

from __future__ import annotations

from markupsafe import Markup

from ackproof.rundir.lab import ComparisonFile
from ackproof_reports.embedding import source_hash
from ackproof_reports.page import asset, environment


def comparison_page(found: ComparisonFile) -> str:
    """The whole page."""
    style = asset("css", ("base.css", "matrix.css", "case.css", "print.css"))
    policy = f"default-src 'none'; style-src '{source_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    letters = [chr(ord("A") + number % 26) for number in range(len(found.batches))]
    return (
        environment()
        .get_template("compared.html.j2")
        .render(found=found, letters=letters, style=Markup(style), policy=policy)
    )
