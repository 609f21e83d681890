"""The short reports: junit.xml for CI systems, and summary.md for a pull request."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.batch import OverRepeats, PairOutcome
from ackproof_reports.answer import answers, tally
from ackproof_reports.expectations import state_of
from ackproof_reports.facts import CaseFacts, timing_names, timings
from ackproof_reports.groups import GroupPage
from ackproof_reports.loading import BatchView, State, exit_meaning
from ackproof_reports.wording import number, one_line, scalar, visible

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES: Final = {
    State.FAIL: ("failure", "FAIL"),
    State.INCONCLUSIVE: ("error", "INCONCLUSIVE"),
    State.HARNESS_FAILED: ("error", "HarnessFailed"),
    State.NOT_JUDGED: ("error", "NotJudged"),
}


def xml_text(text: str) -> str:
    """Return `text` with each character that XML 1.0 forbids replaced by U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


def junit(batch: BatchView, facts: Sequence[CaseFacts]) -> str:
    """Return the results of a batch as JUnit XML: a test case for each case, and for each expectation over repeats.
    FAIL is a failure; every other state except PASS is an error. Times are in seconds; a case's time is the duration of
    its run."""
    spanning = batch.file.over_repeats
    states = [fact.case.state for fact in facts] + [state_of(one) for one in spanning]
    failures = states.count(State.FAIL)
    errors = len(states) - failures - states.count(State.PASS)
    totals = {
        "name": xml_text(batch.name),
        "tests": str(len(states)),
        "failures": str(failures),
        "errors": str(errors),
        "skipped": "0",
        "time": _seconds(sum(fact.course.end_ns for fact in facts)),
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals)
    if batch.started_ns > 0:
        started = datetime.fromtimestamp(batch.started_ns // 10**9, UTC)
        suite.set("timestamp", started.strftime("%Y-%m-%dT%H:%M:%S"))
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
            "classname": xml_text(case.case.experiment if case.case else batch.name),
            "name": xml_text(case.entry.case),
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
    lines = [
        f"{name}: {number(fact.count(name))}" for name in ("produced", "acked", "failed", "indeterminate")
    ]
    lines += [f"{name}: {number(count)}" for name, count in (case.counts if case.audit else {}).items()]
    lines += [f"group {group.group}: {_group_text(group)}" for group in fact.groups]
    lines.append(f"longest gap between acks: {fact.gap}")
    lines += [f"starved: {sentence}" for sentence in case.starved]
    lines += [f"absent: {sentence}" for sentence in fact.absent]
    _add_outcome(node, case.state, text, "\n".join(lines))


def _group_text(page: GroupPage) -> str:
    """Return a group's counts, and each class with findings, as one line; `not counted` if it was not audited."""
    if page.counts is None:
        return "not counted"
    told = [
        f"{name} {number(getattr(page.counts, name))}"
        for name in ("input", "processed", "accepted", "refused")
    ]
    return ", ".join(told + [f"{row.anomaly} {number(row.count)}" for row in page.classes if row.count])


def _over_repeats(suite: ET.Element, batch: BatchView, one: OverRepeats) -> None:
    name = {"classname": xml_text(one.experiment or batch.name), "name": xml_text(one.title), "time": "0.000"}
    node = ET.SubElement(suite, "testcase", name)
    state = state_of(one)
    _properties(node, [("verdict", state.value), ("repeats", str(one.repeats)), ("interval", one.interval)])
    _add_outcome(node, state, one.outcome_text, one.outcome_text)


def _add_outcome(node: ET.Element, state: State, text: str, output: str) -> None:
    if state in _OUTCOMES:
        tag, kind = _OUTCOMES[state]
        ET.SubElement(node, tag, {"type": kind, "message": xml_text(one_line(text))}).text = xml_text(text)
    ET.SubElement(node, "system-out").text = xml_text(output)


def _properties(node: ET.Element, pairs: Sequence[tuple[str, str]]) -> None:
    properties = ET.SubElement(node, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", {"name": xml_text(name), "value": xml_text(value)})


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f}"


_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
_SETTINGS: Final = 20_000
"""Greatest number of characters for the settings of a cluster in the summary."""
SIGNS: Final = {
    State.PASS: "✅ PASS",
    State.FAIL: "❌ FAIL",
    State.INCONCLUSIVE: "❓ INCONCLUSIVE",
    State.HARNESS_FAILED: "⚠️ HARNESS FAILED",
    State.NOT_JUDGED: "➖ NOT JUDGED",
}


def markdown(text: str, limit: int = 400) -> str:
    """Return untrusted text, escaped for a line or a table cell: nothing in it becomes Markdown, HTML, a
    link, a mention or a new row. `limit`: greatest number of characters before escaping.
    """
    escaped = _SPECIAL.sub(r"\\\1", one_line(visible(text), limit))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # GitHub makes links of bare addresses and mentions of names.
    return escaped.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def markdown_code(text: str) -> str:
    """Return the text as inline Markdown code, fenced by more backticks than follow each other in the text; `—` for
    blank text."""
    line = visible(text).replace("\n", " ")
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line.strip() else "—"


def summary(batch: BatchView, facts: Sequence[CaseFacts]) -> str:
    """Return the summary of a batch as Markdown, for a pull request or a job summary. Raises `BadInput` for a broken
    `pairs.json`."""
    told = answers(batch)
    lines = [f"## ackproof: {markdown(batch.name)}", ""]
    lines += [
        f"**{markdown(a.text)}**" if len(told) == 1 else f"- {markdown(a.experiment)}: {markdown(a.text)}"
        for a in told
    ]
    code_said = f"exit code {batch.file.exit_code}: {exit_meaning(batch.file.exit_code)}"
    lines += ["", f"{SIGNS[batch.state]} ({code_said}). {tally(batch)}.", ""]
    for timing, titles in timings(facts):
        first, *rest = timing.lines()
        lines += [markdown(f"{first}{f' ({titles})' if titles else ''}."), ""]
        lines += [*(f"- {markdown(text, _SETTINGS)}" for text in rest), ""] if rest else []
    if batch.file.interrupted:
        lines += ["The batch was interrupted; cases after that point did not run.", ""]
    lines += _table(facts)
    if groups := [(fact, group) for fact in facts for group in fact.groups]:
        lines += ["", "### Consumer groups", ""]
        lines += [
            f"- {markdown(fact.title)}: {markdown(group.group)}: {_group_text(group)}"
            for fact, group in groups
        ]
    if spanning := batch.file.over_repeats:
        lines += ["", "### Over repeats", ""]
        lines += [
            f"- {SIGNS[state_of(one)]} {markdown(one.title)}: {markdown(one.outcome_text)}"
            for one in spanning
        ]
    for table in batch.pairs.tables:
        lines += [
            "",
            f"### Pairs of fault kinds: {markdown(table.title)}",
            "",
            f"{markdown(table.tally)}.",
            "",
        ]
        lines += [
            f"- {markdown(' + '.join(pair.kinds))}: {markdown(pair.case)}: {markdown(pair.why)}"
            for pair in table.having(PairOutcome.NOT_BITTEN)
        ]
    reasons = [(fact, fact.case.entry.error or "", fact.case.reasons) for fact in facts]
    if any(error or given for _, error, given in reasons):
        lines += ["", "### Reasons", ""]
        for fact, error, given in reasons:
            lines += [f"- {markdown(fact.title)}: {markdown(text)}" for text in (*given, error) if text]
    lines += _reductions(facts)
    if permitted := [(fact, fact.case.judged.permitted) for fact in facts if fact.case.judged]:
        told_of = [f"- {markdown(fact.title)}: {markdown(text)}" for fact, text in permitted if text]
        lines += ["", "### Why what is gone passes", "", *told_of] if told_of else []
    if starved := [(fact, why) for fact in facts for why in fact.case.starved]:
        lines += ["", "### Starved: what takes time says nothing of Kafka", ""]
        lines += [f"- {markdown(fact.title)}: {markdown(why)}" for fact, why in starved]
    if batch.absent or any(fact.absent for fact in facts):
        lines += ["", "<details><summary>What is absent</summary>", ""]
        lines += [f"- {markdown(text)}" for text in batch.absent]
        lines += [f"- {markdown(fact.title)}: {markdown(text)}" for fact in facts for text in fact.absent]
        lines += ["", "</details>"]
    lines += ["", f"Seed {batch.file.seed}. Repeat with: {markdown_code(batch.file.command)}", ""]
    return "\n".join(lines)


def _reductions(facts: Sequence[CaseFacts]) -> list[str]:
    """Return a section with each forbidden class of a case that a search with reductions calls impossible, and the
    command that searches without them; empty if there is none."""
    lines = []
    for fact in facts:
        for one in fact.case.judged.classes if fact.case.judged else ():
            if one.count and one.forbidden and one.reductions and one.predicted == Chance.IMPOSSIBLE:
                text = (
                    f"{fact.title}: {one.anomaly} is impossible by a search with the reductions "
                    f"{', '.join(one.reductions)}. To search without them, in the folder of the batch: "
                )
                lines.append(f"- {markdown(text)} {markdown_code(fact.case.unreduced_command)}")
    title = '### Searches behind an "impossible"'
    return ["", title, "", *lines] if lines else []


def _table(facts: Sequence[CaseFacts]) -> list[str]:
    under = f", timing {markdown(names)}" if (names := timing_names(facts)) else ""
    lines = [
        f"| case | verdict | acked | lost | duplicates | indeterminate | longest gap between acks{under} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fact in facts:
        cells = [
            markdown(fact.title, 200),
            SIGNS[fact.case.state],
            *(number(fact.count(name)) for name in ("acked", "lost", "duplicate", "indeterminate")),
            fact.gap,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
