"""What was predicted of the cases, as a page shows it: a sentence about the scope, and each story drawn once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ackproof.rundir.model import PredictedClass, PredictionFile, StoryStep
from ackproof_reports.facts import CaseFacts
from ackproof_reports.sequence import sequence

MAX_DRAWN: Final = 24
"""Diagrams of one page; further stories stay in `prediction.json`."""


@dataclass(frozen=True)
class Story:
    """A story: of which classes, why, and its diagram, or where it is drawn already."""

    anomalies: str
    why: str
    drawing: Markup | None
    same_as: str
    """The title of the case that draws it; empty where it is drawn here, or nowhere."""


def stories_of(facts: Sequence[CaseFacts]) -> list[tuple[Story, ...]]:
    """For every case in order; none where nothing was predicted."""
    drawn: dict[tuple[StoryStep, ...], str] = {}
    predicted = ((fact.case.prediction or PredictionFile(), fact.title) for fact in facts)
    return [tuple(_stories(file, title, drawn)) for file, title in predicted]


def _stories(file: PredictionFile, title: str, drawn: dict[tuple[StoryStep, ...], str]) -> Iterator[Story]:
    alike: dict[tuple[StoryStep, ...], list[PredictedClass]] = {}
    for one in file.classes:
        if one.steps:
            alike.setdefault(one.steps, []).append(one)
    for steps, classes in alike.items():
        names = ", ".join(one.anomaly for one in classes)
        before = drawn.get(steps, "")
        drawing = None
        if not before and len(drawn) < MAX_DRAWN:
            drawn[steps] = title
            ending = classes[0].story[-1].removeprefix("✗").strip() if classes[0].story else names
            drawing = Markup(sequence(steps, ending, f"The shortest way to: {names}"))
        yield Story(names, classes[0].why, drawing, before)
