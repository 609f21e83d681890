"""A workload on a bench, for faults of clients."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ackproof.base.processes import RunTag
from ackproof.base.units import FROM_FILE
from ackproof.base.wait import wait_until
from ackproof.clients.workload import Workload
from ackproof.experiment.spec import TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Timeline
from faultbench.bench import Bench
from faultbench.table import Bite

IN_TRANSACTIONS = {"producers": {"rate": "2000/s", "idempotence": True, "transaction_size": 50}}
LOAD = {"producers": {"count": 2, "rate": "2000/s"}, "consumers": {"live": 1}}
KILLED = ("producer(0)", "reader(0)", "producers")
FROZEN = ("producer", "producers", "reader(0)")


def of_library(load: Mapping[str, Mapping[str, object]], client: str) -> dict[str, object]:
    """Return the settings of a load whose clients are all of the library `client`."""
    return {kind: {**settings, "client": client} for kind, settings in load.items()}


@contextmanager
def load_on(bench: Bench, folder: Path, load: Mapping[str, object]) -> Iterator[Workload]:
    """Start a workload with settings as in a file. Yield it once every producer has more than 100 acknowledgements and
    every reader more than 100 records. Raises `WaitTimeout` after 60 s without these."""
    spec = WorkloadSpec.model_validate(load, context=FROM_FILE)
    topics = {"t": TopicSpec()}
    run = CaseDir(folder / "case")
    tag = RunTag(secrets.token_hex(8), folder, run.path)
    timeline = Timeline(run.timeline, RunClock.start())
    made = Workload(spec, topics, bench.cluster.bootstrap, timeline, tag)
    made.start()
    try:
        wait_until(
            lambda: all(made.counters(client).total() > 100 for client in made.running()),
            what="every client to be at work",
            timeout_s=60,
            state=lambda: str({client: made.counters(client).total() for client in made.running()}),
        )
        yield made
    finally:
        made.abort()
        timeline.close()


def kill_clients(bench: Bench, workload: Workload) -> list[Bite]:
    """Kill one client after the other, each of which is replaced; return the results."""
    return [bench.bite(f"kill_client: {{client: {client}}}", clients=workload) for client in KILLED]


def freeze_clients(bench: Bench, workload: Workload) -> list[Bite]:
    """Pause and continue one client after the other; return the results."""
    return [bench.bite(f"pause_client: {{client: {client}}}", clients=workload) for client in FROZEN]
