"""`junit.xml`: a testsuite per batch, a testcase per case. FAIL is a failure; no verdict or INCONCLUSIVE an error."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ackproof.rundir.batch import OverRepeats
from ackproof_reports.answer import answers, tally
from ackproof_reports.facts import CaseFacts
from ackproof_reports.loading import BatchView, State
from ackproof_reports.over_repeats import state_of
from ackproof_reports.wording import number, one_line, scalar

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES: Final = {
    State.FAIL: ("failure", "FAIL"),
    State.INCONCLUSIVE: ("error", "INCONCLUSIVE"),
    State.HARNESS_FAILED: ("error", "HarnessFailed"),
    State.NOT_JUDGED: ("error", "NotJudged"),
}


def clean(text: str) -> str:
    """`text` without the characters that XML 1.0 cannot hold; each becomes U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


def junit(batch: BatchView, facts: Sequence[CaseFacts]) -> str:
    """The document. Times are seconds; a case's time is its run's, from the timeline."""
    spanning = batch.file.over_repeats
    states = [fact.case.state for fact in facts] + [state_of(one) for one in spanning]
    failures = states.count(State.FAIL)
    errors = len(states) - failures - states.count(State.PASS)
    totals = {
        "name": clean(batch.name),
        "tests": str(len(states)),
        "failures": str(failures),
        "errors": str(errors),
        "skipped": "0",
        "time": _seconds(sum(fact.course.end_ns for fact in facts)),
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals)
    if batch.started_ns > 0:
        suite.set(
            "timestamp", datetime.fromtimestamp(batch.started_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        )
    _properties(
        suite,
        [
            ("verdict", batch.state.value),
            ("exit_code", str(batch.file.exit_code)),
            ("seed", str(batch.file.seed)),
            ("command", batch.file.command),
            ("cases", tally(batch)),
            *(("answer", answer.text) for answer in answers(batch)),
        ],
    )
    for fact in facts:
        _case(suite, batch, fact)
    for one in spanning:
        _over_repeats(suite, batch, one)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, batch: BatchView, fact: CaseFacts) -> None:
    case = fact.case
    node = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": clean(case.case.experiment if case.case else batch.name),
            "name": clean(case.entry.case),
            "time": _seconds(fact.course.end_ns),
        },
    )
    _properties(
        node,
        [
            ("verdict", case.state.value),
            ("seed", str(batch.file.seed if case.seed is None else case.seed)),
            ("repeat", str(case.entry.repeat)),
            *((f"setting:{path}", scalar(value)) for path, value in case.settings.items()),
            ("run", case.entry.run),
            *([("replay", case.case.replay)] if case.case else []),
        ],
    )
    text = "\n".join(case.reasons) or "no reason recorded"
    if case.state is State.HARNESS_FAILED:
        text = case.entry.error or text
    elif case.state is State.NOT_JUDGED:
        text = "the case was not judged: " + ("; ".join(fact.absent) or "no reason")
    if case.state in _OUTCOMES:
        tag, kind = _OUTCOMES[case.state]
        ET.SubElement(node, tag, {"type": kind, "message": clean(one_line(text))}).text = clean(text)
    ET.SubElement(node, "system-out").text = clean("\n".join(_told(fact)))


def _over_repeats(suite: ET.Element, batch: BatchView, one: OverRepeats) -> None:
    """What is expected over repeats is a testcase of its own."""
    name = {"classname": clean(one.experiment or batch.name), "name": clean(one.title), "time": "0.000"}
    node = ET.SubElement(suite, "testcase", name)
    state = state_of(one)
    _properties(node, [("verdict", state.value), ("repeats", str(one.repeats)), ("interval", one.interval)])
    if state in _OUTCOMES:
        tag, kind = _OUTCOMES[state]
        ET.SubElement(node, tag, {"type": kind, "message": clean(one_line(one.outcome_text))}).text = clean(
            one.outcome_text
        )
    ET.SubElement(node, "system-out").text = clean(one.outcome_text)


def _told(fact: CaseFacts) -> list[str]:
    lines = [
        f"{name}: {number(fact.count(name))}" for name in ("produced", "acked", "failed", "indeterminate")
    ]
    lines += [
        f"{name}: {number(count)}" for name, count in (fact.case.counts if fact.case.audit else {}).items()
    ]
    lines.append(f"longest gap between acks: {fact.gap}")
    lines += [f"starved: {sentence}" for sentence in fact.case.starved]
    return lines + [f"absent: {sentence}" for sentence in fact.absent]


def _properties(node: ET.Element, pairs: Sequence[tuple[str, str]]) -> None:
    properties = ET.SubElement(node, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", {"name": clean(name), "value": clean(value)})


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f}"
