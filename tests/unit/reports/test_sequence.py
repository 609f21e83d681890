"""Tests of the sequence diagrams of counterexamples: lanes, steps, the finding, escaped texts, their page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.model import PredictedClass, PredictionFile, StoryStep
from ackproof_reports.reference import stories_of
from ackproof_reports.story import MAX_STEPS, WIDTH, Tale, explored_title, sequence, story_page

STEPS = (
    StoryStep(actor="client", target="broker 1", text="sends <record> 0 & waits"),
    StoryStep(actor="broker 2", target="broker 1", text="asks for offset 0 " * 8),
    StoryStep(actor="controller", text="decides \x1b[31m alone"),
)


LOST = "lost (acknowledged, and not there)"


@pytest.mark.parametrize(("ending", "drawn"), [("lost: ✗ 0 is gone", "✗ lost: ✗ 0 is gone"), ("", "✗ lost")])
def test_the_finding_ends_the_drawing(ending: str, drawn: str) -> None:
    """Files of older versions have no text of the finding: the names of the classes are drawn instead."""
    found = PredictedClass(
        anomaly="lost", chance=Chance.POSSIBLE, why="w", story=("1. s", "✗  old"), steps=STEPS, ending=ending
    )
    fact: Any = SimpleNamespace(title="c", case=SimpleNamespace(prediction=PredictionFile(classes=(found,))))
    (((story,),),) = (stories_of([fact]),)
    texts = ElementTree.fromstring(str(story.drawing)).iter("text")
    assert [text.text for text in texts if text.get("class") == "ending"] == [drawn]


def test_each_actor_has_a_lane_and_each_step_its_place_below_the_last() -> None:
    drawing = ElementTree.fromstring(sequence(STEPS, "lost: record 0", "How it is lost"))
    heads = [text.text for text in drawing.iter("text") if text.get("class") == "head"]
    assert heads == ["client", "controller", "broker 1", "broker 2"]
    said = [
        (float(text.get("y", 0)), text.text) for text in drawing.iter("text") if text.get("class") == "said"
    ]
    assert said == sorted(said) and len({y for y, _ in said}) == len(said)
    assert len([line for line in drawing.iter("line") if line.get("class") == "arrow"]) == 2
    height = float(drawing.get("viewBox", "").split()[3])
    for line in drawing.iter("line"):
        assert all(0 <= float(line.get(name, -1)) <= WIDTH for name in ("x1", "x2"))
        assert all(0 <= float(line.get(name, -1)) <= height for name in ("y1", "y2"))


def test_text_of_a_story_is_escaped_and_cannot_steer() -> None:
    drawing = sequence(STEPS, "lost", "t")
    assert "&lt;record&gt; 0 &amp; waits" in drawing
    assert "\x1b" not in drawing


def test_a_long_story_is_cut_and_says_so() -> None:
    drawing = sequence(STEPS[:1] * (MAX_STEPS + 5), "lost", "t")
    assert "… and 5 further steps" in drawing


@pytest.mark.parametrize(
    ("found", "missing", "whole", "title"),
    [
        pytest.param(
            ("lost",), (), True, f"In {len(STEPS)} steps K comes to a record that is {LOST}", id="one"
        ),
        pytest.param(
            ("lost", "duplicate"),
            ("vanished",),
            False,
            f"In {len(STEPS)} steps K comes to a record that is {LOST}, and 1 more class",
            id="two",
        ),
        pytest.param((), ("lost", "vanished"), True, "K never comes to: lost and vanished", id="none"),
        pytest.param((), ("lost",), False, "Whether K comes to lost stayed open", id="open"),
    ],
)
def test_an_exploration_has_a_title_that_says_what_it_came_to(
    found: tuple[str, ...], missing: tuple[str, ...], whole: bool, title: str
) -> None:
    tales = [Tale(name, "record 0", STEPS) for name in found]
    assert explored_title("K", tales, missing, whole=whole) == title


def test_the_page_loads_nothing() -> None:
    page = story_page("Kafka <4.1>", ["10 states"], [Tale("lost", "record 0", STEPS)])
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert "Kafka &lt;4.1&gt;" in page and "http" not in page.replace("http-equiv", "")
