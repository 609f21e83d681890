"""Reports: a batch folder → `report.html`, `junit.xml`, `summary.md`.

Belongs here: how facts on disk look to a reader. Does not belong here: counting (audit), deciding (judge), running.
It reads run directories through `ackproof.rundir` and nothing else; what is absent there is said to be absent.

::

    loading    batch.json and case folders → BatchView, CaseView; tolerant, lists what is missing
    course     timeline → phases, faults as spans, marks, sentences
    series     series.parquet → bins of acks and latencies, the longest gaps
    observed   samples → leader and ISR strips, the unreplicated tail
    findings   findings/*.parquet → counts, the rows that a page can carry; ranges: where the lost records were
    causes     conformance.json → what took the acknowledged records, step by step and record by record
    mechanics  samples, conformance.json, replicas.json → what each replica had and what was cut of it
    stories    ledgers → the stories of lost records, the other copies of duplicates; grouped: findings in lines
    files      the run's folder → links
    cells      cases → matrix axes, cells with their repeats
    recovery, alerts, lanes   times after faults and their spread, metrics beside them, bars over time
    over_repeats  what was expected over repeats: distribution, interval, verdict
    answer     the one sentence
    picture    what the charts draw, as JSON
    compared   a comparison of batches, and trend: batches over time → a page each
    page       report.html        junit → junit.xml        markdown → summary.md
    claims     claims.json → claims.html
    gate       batches on several Kafkas → one summary; annotations and outputs for GitHub
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["render_batch"]


def render_batch(batch_dir: Path) -> None:
    """Write the three reports of a batch into its folder, each replaced in one step.

    Raises `BadInput` when the folder holds neither a readable `batch.json` nor a single case.
    """
    # Heavy imports (pyarrow, jinja2) only when something is rendered.
    from ackproof.rundir.documents import write_atomically
    from ackproof_reports.facts import gather
    from ackproof_reports.junit import junit
    from ackproof_reports.loading import load_batch
    from ackproof_reports.markdown import summary
    from ackproof_reports.page import page

    batch = load_batch(batch_dir)
    facts = gather(batch)
    write_atomically(batch.directory.junit_xml, junit(batch, facts))
    write_atomically(batch.directory.summary_md, summary(batch, facts))
    write_atomically(batch.directory.report_html, page(batch, facts))
