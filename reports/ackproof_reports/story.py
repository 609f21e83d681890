"""A page with stories of the explorer and their sequence diagrams: no script, no network, both themes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.model import StoryStep
from ackproof_reports.embedding import source_hash
from ackproof_reports.sequence import sequence
from ackproof_reports.wording import joined, plural, visible

_CSS: Final = Path(__file__).parent / "templates" / "css"
_STYLES: Final = ("base.css", "sequence.css", "print.css")


@dataclass(frozen=True)
class Tale:
    """The shortest way to one class of finding."""

    anomaly: str
    text: str
    steps: Sequence[StoryStep]


def explored_title(rules: str, tales: Sequence[Tale], missing: Sequence[str], *, whole: bool) -> str:
    """What an exploration of these rules came to, as one says it: found, impossible, or left open."""
    if tales:
        more = f", and {plural(len(tales) - 1, 'more class', 'more classes')}" if len(tales) > 1 else ""
        steps = plural(len(tales[0].steps), "step")
        of_records = tales[0].anomaly in TABLE
        what = f"a record that is {_words(tales[0].anomaly)}" if of_records else f"this: {tales[0].anomaly}"
        return f"In {steps} {rules} comes to {what}{more}"
    names = joined([*missing])
    return f"{rules} never comes to: {names}" if whole else f"Whether {rules} comes to {names} stayed open"


def _words(anomaly: str) -> str:
    """`lost (acknowledged, and not there)`."""
    row = TABLE.get(anomaly)
    return anomaly if row is None else f"{anomaly} ({row.short})"


def story_page(title: str, notes: Sequence[str], tales: Sequence[Tale]) -> str:
    """The whole page."""
    style = "\n".join((_CSS / name).read_text(encoding="utf-8") for name in _STYLES)
    policy = f"default-src 'none'; style-src '{source_hash(style)}'; base-uri 'none'; form-action 'none'"
    body = "".join(f"<p>{escape(visible(note))}</p>" for note in notes)
    body += "".join(
        f"<section><h2>{escape(visible(_words(tale.anomaly)))}</h2>"
        f"{sequence(tale.steps, f'{tale.anomaly}: {tale.text}', f'The shortest way to: {tale.anomaly}')}</section>"
        for tale in tales
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(title))}</title><style>{style}</style></head>"
        f'<body><main class="story-page"><h1>{escape(visible(title))}</h1>{body}</main></body></html>'
    )
