"""Paths of the files of a batch and a case. `rundir.windows` has the paths of a soak's windows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERIES_FILE: Final = "series.parquet"
"""Default name of the series file: acks, reads and latencies over time. A repeated audit uses another name if
this one is taken.
"""
COMMITS: Final = "commits.jsonl"
"""Name of the file with a live reader's offset commits, in its folder below `clients`."""
_FILE_OF = {"findings": re.compile(r"[^/\0]+\.parquet"), "series": re.compile(r"series[^/\0]*\.parquet")}
"""Allowed names of the files that `audit.json` lists. No such name leads out of its folder."""
_ATTEMPT = re.compile(r"part-[0-9a-f]{8}-[0-9]+-[0-9]+-")
"""Prefix of the findings files that an audit is still writing. When it is done, it lists its files in
`audit.json`.
"""
_UNSAFE = re.compile(r"[^A-Za-z0-9._=,+-]+")


def safe_name(text: str) -> str:
    """Return `text` as one path component: each run of characters other than ASCII letters, digits and ``._=,+-``
    becomes one ``_``; dots at its ends are removed. If nothing is left, it is ``_``."""
    return _UNSAFE.sub("_", text).strip(".") or "_"


def client_folder(client: str) -> str:
    """Return the name of a client's folder, `client=<id>`, which is the same in each ledger, such as
    `ledger/produced`."""
    return f"client={client}"


class _PathBelow:
    """Descriptor: in a `CaseDir` or `BatchDir` its value is the path `below`, joined to that folder's path."""

    def __init__(self, below: str) -> None:
        self._below = below

    def __get__(self, owner: CaseDir | BatchDir, _: object) -> Path:
        return owner.path / self._below


@dataclass(frozen=True)
class CaseDir:
    """The folder of one run, with the paths of its files, whether these exist or not."""

    path: Path

    case_json = _PathBelow("case.json")
    """The resolved case with the list of clients: enough to run it again."""
    seal = _PathBelow("seal.json")
    """Digests of `case.json`, the timeline, the ledgers, observations and windows at the end of the run."""
    timeline = _PathBelow("timeline.jsonl")
    """Events, one JSON object a line. The last event of a run that finished is `end`."""
    ledger = _PathBelow("ledger")
    """Folder of all ledgers."""
    produced = _PathBelow("ledger/produced")
    """`client=<id>/part-*.parquet` of the producers."""
    consumed = _PathBelow("ledger/consumed")
    """`client=<id>/part-*.parquet` of the readers."""
    transactions = _PathBelow("ledger/transactions")
    """`client=<id>/part-000000.parquet` of transactional producers: the outcome of each transaction."""
    deliveries = _PathBelow("ledger/deliveries")
    """`client=<id>/part-000000.parquet` of group members: each record that the member received (`rundir.groups`)."""
    commits_ledger = _PathBelow("ledger/commits")
    """`client=<id>/part-000000.parquet` of group members: each offset that the member asked to commit."""
    membership = _PathBelow("ledger/membership")
    """`client=<id>/part-000000.parquet` of group members: each `MembershipEvent`, such as an assignment or a reset."""
    shares_ledger = _PathBelow("ledger/shares")
    """`client=<id>/part-000000.parquet` of share group members: each record that the member received
    (`rundir.shares`)."""
    second_read = _PathBelow("second-read")
    """Folder with the structure of a run's folder. It has the ledger of a second final reader, which reads again where
    the first one passed over offsets."""
    journal = _PathBelow("journal")
    """Memory-mapped journals of clients, until they are converted to Parquet."""
    clients = _PathBelow("clients")
    """Settings, statistics and output of client processes, one folder per client."""
    nodes = _PathBelow("nodes")
    """One folder per node: server.properties, hosts file, logs and (until the end of the run) data."""
    attached_json = _PathBelow("attached.json")
    """Topics created on a cluster that ackproof does not own. Exists until they are deleted there."""
    windows = _PathBelow("windows")
    """One folder per window of a soak (`rundir.windows`)."""
    observed = _PathBelow("observed")
    """Folder of the observations: what brokers and nodes answered, their logs on disk, and the load of the machine."""
    samples = _PathBelow("observed/partitions.jsonl")
    """Leader, ISR, leader epoch, high watermark, log ends: one JSON object a line, each a sample of one partition."""
    pulse = _PathBelow("observed/pulse.jsonl")
    """Load of the machine and the harness, once a second: pressure, steal, delays, records sent."""
    metrics = _PathBelow("observed/metrics.parquet")
    """The nodes' own metrics, scraped once a second. Written only with `observe: {metrics: true}`."""
    brokers = _PathBelow("observed/brokers.jsonl")
    """Each broker's own view of the cluster, and what it serves to a client. Written only with `observe: {brokers:
    true}`."""
    final_read = _PathBelow("observed/final-read.json")
    """Start, end and epoch of each partition of the final read, and whether it was complete."""
    recovery = _PathBelow("observed/recovery.json")
    """What had not recovered when the run was over: partitions, replicas, clients, groups, controllers."""
    committed = _PathBelow("observed/committed.json")
    """Committed offsets when the run was over: of each group's coordinator, and of the replicas' logs. Written only if
    readers commit, on a cluster that ackproof owns."""
    replicas = _PathBelow("observed/replicas.json")
    """State of each replica's log on disk at the end: log start and end, epochs, checkpoints."""
    replica_batches = _PathBelow("observed/replicas.parquet")
    """One row per record batch of each replica at the end."""
    service = _PathBelow("observed/service.json")
    """How the instances of a service under test ended, and its group's commits (`rundir.service`)."""
    service_output = _PathBelow("observed/service.parquet")
    """Output records of a service under test (`rundir.service.OUTPUT`)."""
    groups = _PathBelow("observed/groups.json")
    """State of consumer groups and their members at the end of the run (`rundir.groups`)."""
    shares = _PathBelow("observed/shares.json")
    """State of share groups and their members at the end of the run (`rundir.shares`)."""
    offsets_log = _PathBelow("observed/offsets-log.parquet")
    """History of the experiment's groups in each replica's log of `__consumer_offsets`."""
    metadata_log = _PathBelow("observed/metadata.jsonl")
    """The controllers' metadata log: one JSON object a record."""
    removals_json = _PathBelow("removals.json")
    """What may have removed acknowledged records, by partition; computed before the audit."""
    timestamps_json = _PathBelow("timestamps.json")
    """Timestamps that records of each partition may have; computed before the audit."""
    groups_plan = _PathBelow("groups-plan.json")
    """Facts about the case's consumer groups that the audit needs (`rundir.groups`); written before the audit."""
    audit_json = _PathBelow("audit.json")
    """Counts of the audit by anomaly class, and the names of its findings and series files (`documents.AuditFile`)."""
    findings = _PathBelow("findings")
    """Folder of Parquet files, one row per unit counted; see `finding_parts`."""
    conformance_json = _PathBelow("conformance.json")
    """Result of the replay through the reference implementation: forbidden steps, and an explanation of each loss."""
    prediction_json = _PathBelow("prediction.json")
    """The reference implementation's answer: which anomalies are possible with the run's settings and faults."""
    simulation_json = _PathBelow("simulation.json")
    """Results of simulated runs of the case."""
    verdict_json = _PathBelow("verdict.json")
    """The verdict and its reasons."""

    def served(self, reader: str) -> Path:
        """Return the path of the file with the brokers from which a live reader fetched. It exists only with
        `observe: {brokers: true}`."""
        return self.clients / reader / "served.jsonl"

    def commits(self, reader: str) -> Path:
        """Return the path of the file with a live reader's offset commits. It exists only if the reader commits
        (`commit_every`)."""
        return self.clients / reader / COMMITS

    def starts(self, reader: str) -> Path:
        """Return the path of the file with the committed offsets at which a live reader started. It exists only with
        `start: committed`.
        """
        return self.clients / reader / "starts.jsonl"

    def group_output(self, group: str) -> Path:
        """Return the path of the file with the output records of a group (`rundir.service.OUTPUT`), read back at
        read_committed. It exists only if the group has an output topic.
        """
        return self.path / "observed" / f"output-{safe_name(group)}.parquet"

    @property
    def finding_parts(self) -> list[Path]:
        """The findings files that `audit.json` lists; only plain names of `.parquet` files count. The files need not
        exist.

        If it lists none (older versions), is missing or unreadable: all Parquet files in `findings/` except those of
        unfinished audits.
        """
        listed = self._published("findings")
        if isinstance(listed, list) and listed:
            names = [name for name in map(str, listed) if _FILE_OF["findings"].fullmatch(name)]
            return [self.findings / name for name in names]
        return sorted(path for path in self.findings.glob("*.parquet") if not _ATTEMPT.match(path.name))

    @property
    def series(self) -> Path:
        """Path of the series file (acks, reads and latencies per partition and 100 ms). The name is in `audit.json`; if
        that has no name of the form `series*.parquet`, it is `series.parquet`. The file need not exist.
        """
        name = self._published("series")
        if isinstance(name, str) and _FILE_OF["series"].fullmatch(name):
            return self.path / name
        return self.path / SERIES_FILE

    @property
    def published(self) -> list[Path]:
        """Findings and series files that belong to `audit.json`; a later audit deletes them when it has written its
        own. Empty without an `audit.json`: files there may belong to an audit that still runs."""
        return [*self.finding_parts, self.series] if self.audit_json.exists() else []

    def _published(self, name: str) -> object:
        try:
            return json.loads(self.audit_json.read_bytes()).get(name)
        except (OSError, ValueError, AttributeError):
            return None  # no audit, or an unreadable one, which its reader reports


@dataclass(frozen=True)
class BatchDir:
    """The folder of one batch, with the paths of its files, whether these exist or not."""

    path: Path

    batch_json = _PathBelow("batch.json")
    """Result of the batch, rewritten after every case."""
    pairs_json = _PathBelow("pairs.json")
    """Result of each pair of fault kinds: in force together, or why not (`batch.PairsFile`). Exists if storms of pairs
    ran."""
    report_html = _PathBelow("report.html")
    """The report: one self-contained HTML page."""
    junit_xml = _PathBelow("junit.xml")
    """Results for CI systems."""
    summary_md = _PathBelow("summary.md")
    """Short Markdown report for a pull request or a job summary."""

    def case(self, case_id: str) -> CaseDir:
        return CaseDir(self.path / safe_name(case_id))
