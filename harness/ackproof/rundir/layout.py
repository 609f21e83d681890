"""Where each file of a batch and of a case stands. The only place that spells these names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._=,+-]+")


def safe_name(text: str) -> str:
    """`text` as one path component: other characters than letters, digits and ``._=,+-`` become ``_``."""
    return _UNSAFE.sub("_", text).strip(".") or "_"


def client_folder(client: str) -> str:
    """The folder of a client inside `ledger/produced` or `ledger/consumed`."""
    return f"client={client}"


@dataclass(frozen=True)
class CaseDir:
    """The folder of one run."""

    path: Path

    @property
    def case_json(self) -> Path:
        """The resolved case: replayable, with the list of clients."""
        return self.path / "case.json"

    @property
    def timeline(self) -> Path:
        """Events, one JSON object a line; ends with the event `end`."""
        return self.path / "timeline.jsonl"

    @property
    def ledger(self) -> Path:
        """Home of both ledgers."""
        return self.path / "ledger"

    @property
    def produced(self) -> Path:
        """`client=<id>/part-*.parquet` of the producers."""
        return self.ledger / "produced"

    @property
    def consumed(self) -> Path:
        """`client=<id>/part-*.parquet` of the readers."""
        return self.ledger / "consumed"

    @property
    def transactions(self) -> Path:
        """`client=<id>/part-000000.parquet` of transactional producers: what became of each transaction."""
        return self.ledger / "transactions"

    @property
    def journal(self) -> Path:
        """Memory-mapped journals of running clients; empty once they are turned into Parquet."""
        return self.path / "journal"

    @property
    def clients(self) -> Path:
        """Settings, statistics and output of client processes, one folder a client."""
        return self.path / "clients"

    @property
    def nodes(self) -> Path:
        """One folder a node: server.properties, hosts, logs and (until the end) data."""
        return self.path / "nodes"

    @property
    def attached_json(self) -> Path:
        """What was made on a cluster that someone else runs, until it is deleted there."""
        return self.path / "attached.json"

    @property
    def observed(self) -> Path:
        """What was seen of the cluster through the protocol."""
        return self.path / "observed"

    @property
    def samples(self) -> Path:
        """Leader, ISR, epoch, high watermark, log ends: one JSON object a line, a sample of one partition each."""
        return self.observed / "partitions.jsonl"

    @property
    def final_read(self) -> Path:
        """Start, end and epoch of each partition of the final read, and whether it was complete."""
        return self.observed / "final-read.json"

    @property
    def replicas(self) -> Path:
        """What each replica had on disk at the end: log start and end, epochs, checkpoints."""
        return self.observed / "replicas.json"

    @property
    def replica_batches(self) -> Path:
        """One row per record batch of each replica at the end."""
        return self.observed / "replicas.parquet"

    @property
    def metadata_log(self) -> Path:
        """What the controllers' metadata log says of brokers, topics and partitions: one JSON object a record."""
        return self.observed / "metadata.jsonl"

    @property
    def audit_json(self) -> Path:
        """Counts of the audit."""
        return self.path / "audit.json"

    @property
    def findings(self) -> Path:
        """Folder of Parquet files, one row per unit counted."""
        return self.path / "findings"

    @property
    def series(self) -> Path:
        """Acks, reads and latencies per partition and 100 ms."""
        return self.path / "series.parquet"

    @property
    def conformance_json(self) -> Path:
        """The run replayed through the reference implementation: forbidden steps, and what explains each loss."""
        return self.path / "conformance.json"

    @property
    def prediction_json(self) -> Path:
        """What the reference implementation says may happen under these settings and the faults observed."""
        return self.path / "prediction.json"

    @property
    def simulation_json(self) -> Path:
        """What simulated runs of the case came to."""
        return self.path / "simulation.json"

    @property
    def verdict_json(self) -> Path:
        """The verdict and its reasons."""
        return self.path / "verdict.json"


@dataclass(frozen=True)
class BatchDir:
    """The folder of one batch."""

    path: Path

    @property
    def batch_json(self) -> Path:
        """Rewritten after every case."""
        return self.path / "batch.json"

    @property
    def report_html(self) -> Path:
        """One self-contained page."""
        return self.path / "report.html"

    @property
    def junit_xml(self) -> Path:
        """For CI systems."""
        return self.path / "junit.xml"

    @property
    def summary_md(self) -> Path:
        """For a pull request or a job summary."""
        return self.path / "summary.md"

    def case(self, case_id: str) -> CaseDir:
        """The folder of a case."""
        return CaseDir(self.path / safe_name(case_id))
