"""Fixtures with real brokers. They end all processes that they start, and then check that none is left."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackproof import audit
from ackproof.base.errors import MissingTool
from ackproof.base.processes import RunTag, end_children, find_children
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation, install
from ackproof.cluster.protocol import NodeEvent
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.testing.items import PluginSession

from ..audit.local import audited

NEWEST = "4.4.0"
OLDER = "3.9.2"


@dataclass
class Clusters:
    """Factory of clusters below one folder; `end` stops them all."""

    folder: Path
    install: Callable[[str], Installation]
    run_id: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")
    made: list[ProcessCluster] = field(default_factory=list)
    events: dict[int, list[NodeEvent]] = field(default_factory=dict)

    @property
    def tag(self) -> RunTag:
        return RunTag(self.run_id, self.folder, self.folder)

    def make(self, **spec: object) -> ProcessCluster:
        """Return a cluster that is not started yet. `spec`: fields of `ClusterSpec`. `events_of` returns its events."""
        wanted = ClusterSpec.model_validate({"kafka": NEWEST, **spec})
        nodes_dir = self.folder / f"cluster,{len(self.made)}" / "nodes"
        events: list[NodeEvent] = []
        cluster = ProcessCluster(
            wanted, nodes_dir, self.tag, events.append, installed=self.install(wanted.kafka.version)
        )
        self.made.append(cluster)
        self.events[id(cluster)] = events
        return cluster

    def start(self, **spec: object) -> ProcessCluster:
        """Start a cluster and return it. `spec`: fields of `ClusterSpec`."""
        cluster = self.make(**spec)
        cluster.start()
        return cluster

    def events_of(self, cluster: ProcessCluster) -> list[NodeEvent]:
        """Return the events of a cluster's nodes so far, such as starts and deaths."""
        return self.events[id(cluster)]

    def end(self) -> None:
        """Stop all clusters and remove their data; fail if a process is left."""
        for cluster in self.made:
            cluster.stop()
            cluster.remove_data()
        left = find_children(self.run_id)
        end_children(lambda child: child.run_id == self.run_id)
        assert not left, f"left behind: {left}"


@pytest.fixture(scope="module", autouse=True)
def audits_without_spark() -> Iterator[None]:
    """Audit by the same passes without a JVM where a command or the plugin runs in this process. Those in processes of
    their own use Spark (`test_runs.py`, `test_gate.py`, `test_foreign_project.py`), as `tests/audit` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "run", audited)
        patch.setattr(PluginSession, "with_spark", lambda session: None)
        yield


@pytest.fixture(scope="session")
def installs() -> Callable[[str], Installation]:
    """Function that returns the provisioned Kafka of a version. Skips (fails if CI is set) if a tool is missing."""
    known: dict[str, Installation] = {}

    def of(version: str) -> Installation:
        if version not in known:
            try:
                known[version] = install(KafkaBuild(version))
            except MissingTool as error:
                pytest.skip(str(error))
        return known[version]

    return of


@pytest.fixture(scope="module")
def module_clusters(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """Factory of clusters that the tests of a module share."""
    yield from _clusters(installs, tmp_path_factory.mktemp("clusters"))


@pytest.fixture
def clusters(installs: Callable[[str], Installation], tmp_path: Path) -> Iterator[Clusters]:
    """Factory of clusters for a single test."""
    yield from _clusters(installs, tmp_path)


def _clusters(installs: Callable[[str], Installation], folder: Path) -> Iterator[Clusters]:
    made = Clusters(folder, installs)
    try:
        yield made
    finally:
        made.end()
        for data in folder.glob("*/nodes/*/data"):
            shutil.rmtree(data, ignore_errors=True)
