"""One batch folder → three files, each replaced in one step."""

from __future__ import annotations

from pathlib import Path

from ackproof.rundir.documents import write_atomically
from ackproof_reports.facts import gather
from ackproof_reports.junit import junit
from ackproof_reports.loading import load_batch
from ackproof_reports.markdown import summary
from ackproof_reports.page import page


def render(batch_dir: Path) -> None:
    """Write `report.html`, `junit.xml` and `summary.md`. Raises `BadInput` when there is nothing to report on."""
    batch = load_batch(batch_dir)
    facts = gather(batch)
    write_atomically(batch.directory.junit_xml, junit(batch, facts))
    write_atomically(batch.directory.summary_md, summary(batch, facts))
    write_atomically(batch.directory.report_html, page(batch, facts))
