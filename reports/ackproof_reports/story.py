"""The HTML page of counterexamples, each as a sequence diagram: no script, no network, for light and dark themes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.model import StoryStep
from ackproof_reports.embedding import asset, policy
from ackproof_reports.wording import joined, plural, visible

WIDTH: Final = 360
"""Width of a diagram in SVG units. A phone shows about one pixel per unit, so type of 11 units is legible."""
_LETTERS: Final = 56
_HEAD: Final = 26
_LINE: Final = 14
_ARROW: Final = 16
_GAP: Final = 8
MAX_STEPS: Final = 80


def sequence(steps: Sequence[StoryStep], ending: str, title: str) -> str:
    """Return the sequence diagram of a counterexample as SVG: a lane per actor, a row per step with a
    sentence above its arrow. All text is escaped.

    `ending`: the finding, shown below the last step. `title`: for screen readers. Steps after the first 80
    are counted only.
    """
    lanes = _lanes(steps)
    at = {name: round((number + 0.5) * WIDTH / len(lanes), 1) for number, name in enumerate(lanes)}
    parts: list[str] = []
    y = _HEAD + _GAP
    for number, step in enumerate(steps[:MAX_STEPS], start=1):
        lines = textwrap.wrap(visible(f"{number}. {step.actor}: {step.text}"), _LETTERS) or [""]
        for line in lines:
            y += _LINE
            parts.append(f'<text class="said" x="2" y="{y}">{escape(line)}</text>')
        y += _ARROW
        parts.append(_arrow(at[step.actor], at.get(step.target), y - 5))
        y += _GAP
    if len(steps) > MAX_STEPS:
        y += _LINE
        parts.append(f'<text class="said" x="2" y="{y}">… and {len(steps) - MAX_STEPS} further steps</text>')
    for line in textwrap.wrap(visible(f"✗ {ending}"), _LETTERS):
        y += _LINE
        parts.append(f'<text class="ending" x="2" y="{y}">{escape(line)}</text>')
    height = y + _GAP
    heads = [
        f'<line class="lane" x1="{x}" y1="{_HEAD}" x2="{x}" y2="{height}"/>'
        f'<text class="head" x="{x}" y="16" text-anchor="middle">{escape(visible(name))}</text>'
        for name, x in at.items()
    ]
    label = escape(visible(title), quote=True)
    return (
        f'<svg class="sequence" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
        + "".join([*heads, *parts])
        + "</svg>"
    )


def _lanes(steps: Sequence[StoryStep]) -> list[str]:
    """Return the participants of a diagram in the order of their lanes: the client and the controller first, then
    brokers by name."""
    names = {name for step in steps for name in (step.actor, step.target) if name} or {"client"}
    first = [name for name in ("client", "controller") if name in names]
    return [*first, *sorted(names - set(first))]


def _arrow(x: float, to: float | None, y: int) -> str:
    if to is None or to == x:
        return f'<circle class="alone" cx="{x}" cy="{y}" r="4"/>'
    tip = -6 if to > x else 6
    return (
        f'<line class="arrow" x1="{x}" y1="{y}" x2="{to}" y2="{y}"/>'
        f'<path class="tip" d="M{to} {y}l{tip} -4v8z"/><circle class="alone" cx="{x}" cy="{y}" r="2.5"/>'
    )


_STYLES: Final = ("base.css", "sequence.css", "print.css")


@dataclass(frozen=True)
class Tale:
    """The shortest counterexample for one anomaly class. `text`: the finding in which it ends, a sentence."""

    anomaly: str
    text: str
    steps: Sequence[StoryStep]


def explored_title(rules: str, tales: Sequence[Tale], missing: Sequence[str], *, whole: bool) -> str:
    """Return the result of an exploration as a sentence: counterexamples found, anomalies impossible, or undecided.
    `rules`: name of the rules that were explored. `missing`: classes without a counterexample, named only if there are
    no `tales`. `whole`: True if all states were explored."""
    if tales:
        more = f", and {plural(len(tales) - 1, 'more class', 'more classes')}" if len(tales) > 1 else ""
        steps = plural(len(tales[0].steps), "step")
        of_records = tales[0].anomaly in TABLE
        what = f"a record that is {_words(tales[0].anomaly)}" if of_records else f"this: {tales[0].anomaly}"
        return f"In {steps} {rules} comes to {what}{more}"
    names = joined([*missing])
    return f"{rules} never comes to: {names}" if whole else f"Whether {rules} comes to {names} stayed open"


def _words(anomaly: str) -> str:
    row = TABLE.get(anomaly)
    return anomaly if row is None else f"{anomaly} ({row.short})"


def story_page(title: str, notes: Sequence[str], tales: Sequence[Tale]) -> str:
    """Return the HTML page of `ackproof explore`: notes, then each counterexample with its diagram."""
    style = asset("css", _STYLES)
    body = "".join(f"<p>{escape(visible(note))}</p>" for note in notes)
    body += "".join(
        f"<section><h2>{escape(visible(_words(tale.anomaly)))}</h2>"
        f"{sequence(tale.steps, f'{tale.anomaly}: {tale.text}', f'The shortest way to: {tale.anomaly}')}</section>"
        for tale in tales
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(style))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(title))}</title><style>{style}</style></head>"
        f'<body><main class="story-page"><h1>{escape(visible(title))}</h1>{body}</main></body></html>'
    )
