"""Reports: a batch folder → `report.html`, `junit.xml`, `summary.md`.

Belongs here: how facts on disk look to a reader. Does not belong here: counting (audit), deciding (judge), running.
It reads run directories through `ackproof.rundir` and `ackproof.quantities`. The reports name each file that is absent.

::

    loading        batch.json and case folders → BatchView, CaseView; lists what is missing
    course         timeline → phases, faults as spans, marks
    series         series.parquet and samples → bins of acks, latencies, leader and ISR strips
    findings       findings/*.parquet → counts, the rows that a page can carry, where they lie
    stories        conformance.json and ledgers → what took each lost record
    mechanics      samples, conformance.json, replicas.json → what each replica had, what was cut of it
    recovery       times after faults and their spread, metrics of the nodes
    groups         consumer groups: counts, a lane per member
    expectations   what was expected, of one run and over repeats
    evidence       what the judge weighed
    reference      the run compared with its prediction and simulation; counterexamples
    facts          all of a case, gathered once
    answer         the one sentence; cells: cases on the axes of their matrix; wording: numbers and times in words
    picture        data of the charts, lanes of bars; views, embedding, page → report.html
    summaries      junit.xml and summary.md; gate: several Kafka versions in one summary
    one_record     `ackproof explain`: one record through all files; group_story: in consumer groups, and its members
    story          page of `ackproof explore`; comparison_pages: pages of `compare`, `trend` and `claims`
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["render_batch"]


def render_batch(batch_dir: Path) -> None:
    """Write `report.html`, `junit.xml` and `summary.md` of a batch into its folder. A reader sees either the old or the
    new file of each.

    Raises `BadInput` when the folder has neither a readable `batch.json` nor a case, or if `pairs.json` is broken.
    Raises OSError if a timeline or samples cannot be read, or a report cannot be written."""
    # Heavy imports (pyarrow, jinja2) only when something is rendered.
    from ackproof.rundir.document import write_atomically
    from ackproof_reports.facts import gather
    from ackproof_reports.loading import load_batch
    from ackproof_reports.page import page
    from ackproof_reports.summaries import junit, summary

    batch = load_batch(batch_dir)
    facts = gather(batch)
    write_atomically(batch.directory.junit_xml, junit(batch, facts))
    write_atomically(batch.directory.summary_md, summary(batch, facts))
    write_atomically(batch.directory.report_html, page(batch, facts))
