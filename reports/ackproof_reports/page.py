"""`report.html`: a single file without external resources, whose policy forbids all requests.

Every value passes Jinja's autoescape. Markup, which passes unescaped, is made in three modules only: here (own styles
and scripts), in `embedding` (data blocks) and in `reference` (diagrams, whose texts `story.sequence` escapes). Styles
and scripts are admitted by their hash, so that no text that came from a cluster could ever run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ackproof.rundir.bounds import Unit
from ackproof.rundir.narrator import describe_event, name_subject
from ackproof_reports import expectations, groups, series, wording
from ackproof_reports.answer import answers, tally
from ackproof_reports.embedding import MOST_FILES, TEMPLATES, asset, link, policy
from ackproof_reports.facts import CaseFacts, timing_names, timings
from ackproof_reports.loading import BatchView, exit_meaning
from ackproof_reports.picture import LANES_WIDTH
from ackproof_reports.recovery import spreads
from ackproof_reports.views import case_pages, experiments, shared_environment

MAX_EVENTS: Final = 400
MAX_READS: Final = 200
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
    """Return the report of a batch as one self-contained HTML page. Raises `BadInput` for a broken
    `pairs.json`."""
    cases = case_pages(facts)
    not_judged = [text for fact in facts if fact.case.judged for text in fact.case.judged.not_judged]
    return render(
        "report.html.j2",
        STYLES,
        SCRIPTS,
        batch=batch,
        alone=len(batch.cases) == 1,
        answers=answers(batch),
        tally=tally(batch),
        meaning=exit_meaning(batch.file.exit_code),
        experiments=experiments(batch, facts),
        repeats=expectations.over_repeats(batch),
        pairs=batch.pairs,
        cases=cases,
        spreads=spreads(batch, [(one.facts, one.recovery) for one in cases]),
        environment=shared_environment(facts),
        timings=timings(facts),
        timing=timing_names(facts),
        not_judged=list(dict.fromkeys(not_judged)),
        absent=batch.absent,
        span_ns=sum(fact.course.end_ns for fact in facts),
    )


def render(template: str, styles: Sequence[str], scripts: Sequence[str] = (), **values: object) -> str:
    """Return a template as one self-contained HTML page. `styles`, `scripts`: names of files to embed, as tuples
    (`asset`). `values`: variables of the template; a missing variable raises `jinja2.UndefinedError`."""
    style, script = asset("css", styles), asset("js", scripts) if scripts else ""
    return (
        _environment()
        .get_template(template)
        .render(policy=policy(style, script), style=Markup(style), script=Markup(script), **values)
    )


def _finalize(value: object) -> object:
    # Control and direction-changing characters of untrusted text are written out.
    return wording.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    """Return the Jinja environment of the pages. It escapes all values, and refuses missing variables."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES / "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        *(wording.number, wording.plural, wording.duration, wording.moment, wording.share, wording.wall),
        *(wording.scalar, wording.one_line, wording.size, link, describe_event, name_subject),
    )
    made.globals.update({function.__name__: function for function in functions})
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    made.globals.update(
        ABSENT=wording.ABSENT,
        SECONDS=Unit.SECONDS,
        MAX_EVENTS=MAX_EVENTS,
        MAX_READS=MAX_READS,
        MOST_FILES=MOST_FILES,
        SPARK=(series.WIDTH, series.HEIGHT),
        SHARES=(expectations.WIDTH, expectations.HEIGHT),
        LANES=(LANES_WIDTH,),
        MEMBER_LANE=groups.LANE,
    )
    return made
