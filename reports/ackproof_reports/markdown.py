"""`summary.md`: the answer and a table, for a pull request or a job summary (GitHub's Markdown)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ackproof.rundir.batch import PairOutcome
from ackproof_reports.answer import answers, tally
from ackproof_reports.facts import CaseFacts, timing_names, timings
from ackproof_reports.loading import BatchView, State, exit_meaning
from ackproof_reports.over_repeats import state_of
from ackproof_reports.wording import number, one_line, visible

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
_SETTINGS: Final = 20_000
"""Characters that the settings of a cluster may take."""
SIGNS: Final = {
    State.PASS: "✅ PASS",
    State.FAIL: "❌ FAIL",
    State.INCONCLUSIVE: "❓ INCONCLUSIVE",
    State.HARNESS_FAILED: "⚠️ HARNESS FAILED",
    State.NOT_JUDGED: "➖ NOT JUDGED",
}


def plain(text: str, limit: int = 400) -> str:
    """Untrusted text for a line or a table cell: nothing in it is Markdown, HTML, a link, a mention or a new row."""
    escaped = _SPECIAL.sub(r"\\\1", one_line(visible(text), limit))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # GitHub makes links of bare addresses and mentions of names.
    return escaped.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def code(text: str) -> str:
    """Text as code, in a fence of backticks longer than any in it."""
    line = visible(text).replace("\n", " ")
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line.strip() else "—"


def summary(batch: BatchView, facts: Sequence[CaseFacts]) -> str:
    """The document."""
    told = answers(batch)
    lines = [f"## ackproof: {plain(batch.name)}", ""]
    lines += [
        f"**{plain(a.text)}**" if len(told) == 1 else f"- {plain(a.experiment)}: {plain(a.text)}"
        for a in told
    ]
    code_said = f"exit code {batch.file.exit_code}: {exit_meaning(batch.file.exit_code)}"
    lines += ["", f"{SIGNS[batch.state]} ({code_said}). {tally(batch)}.", ""]
    for timing, titles in timings(facts):
        first, *rest = timing.lines()
        lines += [plain(f"{first}{f' ({titles})' if titles else ''}."), ""]
        lines += [*(f"- {plain(text, _SETTINGS)}" for text in rest), ""] if rest else []
    if batch.file.interrupted:
        lines += ["The batch was interrupted; cases after that point did not run.", ""]
    lines += _table(facts)
    if spanning := batch.file.over_repeats:
        lines += ["", "### Over repeats", ""]
        lines += [
            f"- {SIGNS[state_of(one)]} {plain(one.title)}: {plain(one.outcome_text)}" for one in spanning
        ]
    for table in batch.pairs.tables:
        lines += ["", f"### Pairs of fault kinds: {plain(table.title)}", "", f"{plain(table.tally)}.", ""]
        lines += [
            f"- {plain(' + '.join(pair.kinds))}: {plain(pair.case)}: {plain(pair.why)}"
            for pair in table.having(PairOutcome.NOT_BITTEN)
        ]
    reasons = [(fact, fact.case.entry.error or "", fact.case.reasons) for fact in facts]
    if any(error or given for _, error, given in reasons):
        lines += ["", "### Reasons", ""]
        for fact, error, given in reasons:
            lines += [f"- {plain(fact.title)}: {plain(text)}" for text in (*given, error) if text]
    if permitted := [(fact, fact.case.judged.permitted) for fact in facts if fact.case.judged]:
        told_of = [f"- {plain(fact.title)}: {plain(text)}" for fact, text in permitted if text]
        lines += ["", "### Why what is gone passes", "", *told_of] if told_of else []
    if starved := [(fact, why) for fact in facts for why in fact.case.starved]:
        lines += ["", "### Starved: what takes time says nothing of Kafka", ""]
        lines += [f"- {plain(fact.title)}: {plain(why)}" for fact, why in starved]
    if batch.absent or any(fact.absent for fact in facts):
        lines += ["", "<details><summary>What is absent</summary>", ""]
        lines += [f"- {plain(text)}" for text in batch.absent]
        lines += [f"- {plain(fact.title)}: {plain(text)}" for fact in facts for text in fact.absent]
        lines += ["", "</details>"]
    lines += ["", f"Seed {batch.file.seed}. Repeat with: {code(batch.file.command)}", ""]
    return "\n".join(lines)


def _table(facts: Sequence[CaseFacts]) -> list[str]:
    under = f", timing {plain(names)}" if (names := timing_names(facts)) else ""
    lines = [
        f"| case | verdict | acked | lost | duplicates | indeterminate | longest gap between acks{under} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fact in facts:
        cells = [
            plain(fact.title, 200),
            SIGNS[fact.case.state],
            *(number(fact.count(name)) for name in ("acked", "lost", "duplicate", "indeterminate")),
            fact.gap,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
