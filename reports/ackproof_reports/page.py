"""`report.html`: one file that needs nothing else, and whose policy forbids it to ask for anything else.

Every value passes Jinja's autoescape; the only Markup is made here (own styles and scripts) and in `embedding`.
Styles and scripts are admitted by their hash, so that no text that came from a cluster could ever run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ackproof.rundir.narrator import describe_event, name_subject
from ackproof_reports import wording
from ackproof_reports.answer import answers, tally
from ackproof_reports.embedding import MOST_FILES, link, source_hash
from ackproof_reports.expectations import HEIGHT as SHARES_HEIGHT
from ackproof_reports.expectations import WIDTH as SHARES_WIDTH
from ackproof_reports.expectations import over_repeats
from ackproof_reports.facts import CaseFacts, timing_names, timings
from ackproof_reports.loading import BatchView, exit_meaning
from ackproof_reports.picture import LANES_WIDTH
from ackproof_reports.recovery import spreads
from ackproof_reports.series import HEIGHT, WIDTH
from ackproof_reports.views import case_pages, experiments, shared_environment

MAX_EVENTS: Final = 400
MAX_READS: Final = 200
TEMPLATES: Final = Path(__file__).parent / "templates"
STYLES: Final = ("base.css", "matrix.css", "case.css", "chart.css", "sequence.css", "lanes.css", "print.css")
SCRIPTS: Final = (
    "data.js",
    "axis.js",
    "svg.js",
    "panels.js",
    "strips.js",
    "readout.js",
    "chart.js",
    "input.js",
    "stories.js",
    "findings.js",
    "page.js",
)


def page(batch: BatchView, facts: Sequence[CaseFacts]) -> str:
    """The whole page."""
    style, script = asset("css", STYLES), asset("js", SCRIPTS)
    cases = case_pages(batch, facts)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            batch=batch,
            alone=len(batch.cases) == 1,
            policy=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            answers=answers(batch),
            tally=tally(batch),
            meaning=exit_meaning(batch.file.exit_code),
            experiments=experiments(batch, facts),
            repeats=over_repeats(batch),
            pairs=batch.pairs,
            cases=cases,
            spreads=spreads(batch, [(one.facts, one.recovery) for one in cases]),
            environment=shared_environment(facts),
            timings=timings(facts),
            timing=timing_names(facts),
            not_judged=_not_judged(facts),
            absent=batch.absent,
            span_ns=sum(fact.course.end_ns for fact in facts),
        )
    )


def _not_judged(facts: Sequence[CaseFacts]) -> list[str]:
    told = [text for fact in facts if fact.case.judged for text in fact.case.judged.not_judged]
    return list(dict.fromkeys(told))


@cache
def asset(folder: str, names: Sequence[str]) -> str:
    """Styles (`css`) or scripts (`js`) as one text."""
    parts = [(TEMPLATES / folder / name).read_text(encoding="utf-8") for name in names]
    text = "\n".join(parts)
    if folder == "js":
        text = '(() => {\n"use strict";\n' + text + "\n})();"
    return "\n" + text + "\n"


def policy(style: str, script: str = "") -> str:
    """A Content-Security-Policy under which nothing can be fetched and only these two texts count."""
    scripts = f"'{source_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{source_hash(style)}'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _finalize(value: object) -> object:
    """Control and direction-changing characters of untrusted text are written out; see `wording.visible`."""
    return wording.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    """Return the template environment: all text in pages is escaped."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES / "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (
        wording.number,
        wording.plural,
        wording.duration,
        wording.moment,
        wording.share,
        wording.wall,
        wording.scalar,
        wording.one_line,
        wording.size,
        link,
        describe_event,
        name_subject,
    ):
        made.globals[function.__name__] = function
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    made.globals.update(
        ABSENT=wording.ABSENT,
        MAX_EVENTS=MAX_EVENTS,
        MAX_READS=MAX_READS,
        MOST_FILES=MOST_FILES,
        SPARK=(WIDTH, HEIGHT),
        SHARES=(SHARES_WIDTH, SHARES_HEIGHT),
        LANES=(LANES_WIDTH,),
    )
    return made
