"""The attach backend: a cluster that ackproof did not start, reached only through Kafka's protocol.

No node is started or stopped, and no disk is read. Topics are made for a run under unique names
(`ackproof.plan.cases`), and only these are deleted at its end. Each is written to `attached.json` before it is made, so
that `ackproof clean` can list what a killed harness left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ackproof.base.errors import BadInput
from ackproof.base.wait import wait_until
from ackproof.cluster import admin, queries
from ackproof.cluster.backends.attach.secure import opener_of
from ackproof.cluster.install import machine
from ackproof.cluster.metadata import metadata_of
from ackproof.cluster.protocol import Cluster, NodeState
from ackproof.cluster.readiness import create_topics
from ackproof.experiment.kafka import LINES, METADATA, KafkaBuild
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.network.addresses import Address
from ackproof.network.wire import Access, Connection, Question, WireError
from ackproof.rundir.documents import AttachedFile
from ackproof.rundir.layout import CaseDir

ASK_S: Final = 2.0
CONNECT_S: Final = 1.0
DELETED_WITHIN_S: Final = 20.0
_METADATA, _LIST_OFFSETS, _CREATE, _DELETE, _QUORUM, _DESCRIBE = 3, 2, 19, 20, 55, 75
_NEEDED: Final = {_METADATA: 9, _LIST_OFFSETS: 5, _CREATE: 5, _DELETE: 5}
"""Request versions that a broker must support, by API key. A broker before Kafka 2.7 lacks one of them."""
_PROMISES: Final = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
"""Topic settings that the judge assumes by default. They are set explicitly, because defaults of the cluster may
differ.
"""


@dataclass(frozen=True)
class Attachment:
    """Address of an existing cluster (`host:port,…`), and librdkafka's settings for connections to it. The settings may
    hold secrets: never show or write them."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None
    """The file with the settings, if there is one: its name is no secret."""

    def check(self) -> None:
        """Raise `BadInput` for an invalid address, impossible settings of SASL or TLS, and a PEM file that cannot be
        read. Names of settings are not checked. Connects to nothing."""
        self.addresses()
        opener_of(self.settings)

    def addresses(self) -> list[Address]:
        """Return the bootstrap addresses. Raises `BadInput` for an address that is not `host:port`."""
        found = []
        for each in self.bootstrap.split(","):
            host, colon, port = each.strip().rpartition(":")
            if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise BadInput(f"--bootstrap: expected host:port, not '{each.strip()[:80]}'")
            found.append(Address(host.strip("[]"), int(port)))
        return found


@dataclass(frozen=True)
class AttachedNode:
    """A broker of a cluster that ackproof did not start. Its process is out of reach, so it always counts as
    running."""

    id: int
    address: Address
    link: Connection
    is_broker: bool = True
    is_controller: bool = False

    @property
    def name(self) -> str:
        return f"broker-{self.id}"

    def state(self) -> NodeState:
        return NodeState.RUNNING

    def await_ready(self, timeout_s: float) -> None:
        """Wait until the broker answers and lists itself in its metadata. Raises `WaitTimeout` after `timeout_s`
        seconds."""

        def ready() -> bool:
            with contextlib.suppress(WireError):
                return self.id in queries.brokers(self.link)
            return False

        wait_until(ready, what=f"{self.name} to answer", timeout_s=timeout_s)


class AttachedCluster(Cluster):
    """A cluster that ackproof did not start. `attachment`: its address and settings. `nodes_dir`: a subfolder of the
    case directory.

    The case directory gets `attached.json`, the list of the topics that the run creates. `ackproof clean` shows this
    list if a killed run left topics behind. Raises `BadInput` for an invalid address or setting.
    """

    def __init__(self, spec: ClusterSpec, attachment: Attachment, nodes_dir: Path) -> None:
        self.spec = spec
        self._attachment = attachment
        self._opener = opener_of(attachment.settings)
        self._first = attachment.addresses()
        self._file = CaseDir(nodes_dir.parent).attached_json
        self._access = Access(opener=self._opener, connect_s=CONNECT_S)
        self._nodes: dict[int, AttachedNode] = {}
        self._facts: dict[str, str] = {}
        self._made: list[str] = []

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the brokers. Take the metadata mode (KRaft or ZooKeeper) and the brokers' racks from the cluster, not
        from the experiment. Without a rack for each broker, no broker counts as having one. Raises `BadInput` if no
        broker answers (wrong address or credentials), or if one that answers is older than Kafka 2.7."""
        answer, known = self._ask_first()
        self._access = Access(self._opener, describes_partitions=_DESCRIBE in known, connect_s=CONNECT_S)
        racks = {row.node_id: row.rack for row in answer.brokers}
        met = tuple(racks.get(broker) for broker in self.spec.broker_ids)
        mode = "kraft" if _QUORUM in known else "zookeeper"
        # Take racks from the cluster: the experiment file may name others.
        self.spec = self.spec.model_copy(update={"mode": mode, "racks": met if all(met) else ()})
        for row in sorted(answer.brokers, key=lambda row: int(row.node_id)):
            address = Address(row.host, row.port)
            link = Connection(address, timeout_s=ASK_S, access=self._access)
            self._nodes[row.node_id] = AttachedNode(row.node_id, address, link)
        self._facts = facts_of(answer, self.running_links(), zookeeper=self.spec.metadata.broker_controls)

    def _ask_first(self) -> tuple[Any, Container[int]]:
        """Return the first broker's Metadata response about all brokers, and the keys of the APIs that this broker
        supports.

        The first broker is the first bootstrap server that answers and knows brokers. Raises `BadInput` if none does,
        or if one that answers is older than 2.7.
        """
        said: list[str] = []
        for address in self._first:
            with Connection(address, timeout_s=ASK_S, access=self._access) as link:
                try:
                    rows = link.ask(Question("ApiVersions", 0)).api_keys
                    response = link.ask(queries.ask_brokers())
                except WireError as error:
                    said.append(str(error))
                    continue
            known = {row.api_key: (row.min_version, row.max_version) for row in rows}
            for kind, version in _NEEDED.items():
                lowest, highest = known.get(kind, (0, -1))
                if not lowest <= version <= highest:
                    raise BadInput(f"{address}: too old: ackproof asks as Kafka 2.7 and later understand")
            if response.brokers:
                return response, known
            said.append(f"{address}: it knows no brokers")
        raise BadInput(f"no broker of {self._attachment.bootstrap} answers: {'; '.join(said)}")

    def stop(self) -> None:
        for node in self._nodes.values():
            node.link.close()

    def remove_data(self) -> None:
        """Delete the topics that this run created, and no others; then remove `attached.json` and close the
        connections. Does nothing if no topic was created. Raises `WaitTimeout` if a topic remains; then the file
        stays."""
        if not self._made:
            return
        remaining = list(self._made)
        errors: list[str] = []

        def deleted() -> bool:
            link = self.admin_link()
            try:
                if link is not None:
                    queries.delete_topics(link, remaining, ASK_S)
            except WireError as error:
                errors[:] = [str(error)]
            still = {place.topic for place in self.topic_state(remaining)}
            remaining[:] = [name for name in remaining if name in still]
            return not remaining

        try:
            wait_until(
                deleted,
                what=f"topics {', '.join(self._made)} to be deleted at {self._attachment.bootstrap}",
                timeout_s=DELETED_WITHIN_S,
                interval_s=0.2,
                state=lambda: "; ".join(errors) or f"{', '.join(remaining)} still there",
            )
        finally:
            self.stop()
        self._made.clear()
        self._file.unlink(missing_ok=True)

    # -- who and where ----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, AttachedNode]:
        return self._nodes

    @property
    def bootstrap(self) -> str:
        return self._attachment.bootstrap

    @property
    def access(self) -> Access:
        return self._access

    def client_addresses(self) -> Mapping[int, Address]:
        return {broker: node.address for broker, node in self._nodes.items()}

    # -- what it says -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Do nothing. Other clusters raise `NodeDied` here, but the harness cannot see whether a process of this one
        has ended."""

    def controller(self) -> int | None:
        """Return the leader of the KRaft quorum, or in ZooKeeper mode the controller, according to the first broker
        that answers. None if that broker knows none, or if no broker answers."""
        for link in self.running_links().values():
            with contextlib.suppress(WireError):
                return metadata_of(self.spec).controller_seen_by(link)
        return None

    def running_links(self) -> Mapping[int, Connection]:
        return {broker: node.link for broker, node in self._nodes.items()}

    def admin_link(self) -> Connection | None:
        """Return a connection for admin requests: in ZooKeeper mode to the controller if it is known, else to any
        broker. None if no broker is known."""
        links = self.running_links()
        controller = self.controller() if self.spec.metadata.broker_controls else None
        known = None if controller is None else links.get(controller)
        return known or queries.first_answering_link(links)

    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        """Create topics; return when every broker sees all leaders and full ISRs, and leaders answer.

        Where neither the topic nor the cluster in the experiment sets them, min.insync.replicas is 1 and
        unclean.leader.election.enable is false. The topics are written to `attached.json` first. Raises `BadInput` for
        topics that are invalid for Kafka or exist already, because ackproof writes only to its own topics.
        Raises `WaitTimeout` if the brokers do not see them in time.
        """
        if there := sorted({place.topic for place in self.topic_state(topics)}):
            raise BadInput(f"{', '.join(there)}: there already, and ackproof writes only into what it made")
        self._made += topics
        self._file.parent.mkdir(parents=True, exist_ok=True)
        AttachedFile(bootstrap=self._attachment.bootstrap, topics=tuple(self._made)).save(self._file)
        promising: dict[str, TopicSpec] = {}
        for name, topic in topics.items():
            given = {**self.spec.config, **topic.config}
            promises = {key: given.get(key, value) for key, value in _PROMISES.items()}
            promising[name] = topic.model_copy(update={"config": {**promises, **topic.config}})
        create_topics(self, promising, timeout_s)

    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        raise BadInput(f"node {node_id} cannot change to Kafka {build}: someone else runs it")

    def environment(self) -> dict[str, str]:
        return {
            "cluster": f"attached at {self._attachment.bootstrap}: someone else's",
            **self._facts,
            "security": self._attachment.settings.get("security.protocol", "plaintext").lower(),
            **machine(),
        }


_PROTOCOL: Final = "inter.broker.protocol.version"
_SETTINGS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "default.replication.factor",
    "replica.lag.time.max.ms",
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "log.flush.interval.messages",
    "replica.selector.class",
    _PROTOCOL,
)
"""Broker settings that decide about loss and about the duration of a failure."""


def facts_of(metadata: Any, links: Mapping[int, Connection], *, zookeeper: bool) -> dict[str, str]:  # noqa: ANN401
    """Return facts that brokers report about the cluster, as text by name: cluster id, brokers, release, features,
    settings.

    `metadata`: a Metadata response; `links`: a connection to each broker; `zookeeper`: True in ZooKeeper mode, which
    has no quorum to describe. Where brokers differ, the text has each value with its brokers. The entry `not told`
    lists the requests that were refused or not answered, if there are any.
    """
    told: dict[str, dict[int, str]] = {}
    refused: dict[str, None] = {}

    def ask(broker: int, asked: Callable[[Connection], Mapping[str, str]]) -> None:
        try:
            for name, value in asked(links[broker]).items():
                told.setdefault(name, {})[broker] = value
        except WireError as error:
            refused[f"broker {broker}: {error}"] = None

    for broker in sorted(links):
        ask(broker, _features)
        ask(broker, partial(_settings, broker))
    if not zookeeper and links:
        ask(min(links), _quorum)
    for broker, protocol in told.get(_PROTOCOL, {}).items():
        told.setdefault("kafka", {}).setdefault(
            broker, f"{protocol.partition('-')[0]} by {_PROTOCOL}, or later"
        )
    rows = sorted(metadata.brokers, key=lambda row: int(row.node_id))
    racks = {row.node_id: f"rack {row.rack}" if row.rack else "no rack" for row in rows}
    brokers = (f"{row.node_id} at {row.host}:{row.port} in {racks[row.node_id]}" for row in rows)
    return {
        "cluster id": metadata.cluster_id or "not told",
        "brokers": f"{len(rows)}: {', '.join(brokers)}",
        **{name: _joined(values) for name, values in told.items()},
        **({"not told": "; ".join(refused)} if refused else {}),
    }


def release_of(levels: Mapping[str, tuple[int, int]]) -> str:
    """Return in words the release line whose brokers support these levels of metadata.version, such as `4.1, by
    metadata.version up to 27`; '' without levels.

    `levels`: lowest and highest supported level by feature name.
    """
    highest = levels.get(METADATA, (0, 0))[1]
    line = next((one for one in reversed(LINES) if one.features[METADATA][1] <= highest), None)
    name = f"before {LINES[0]}" if line is None else f"{line}"
    if line is not None and line.features[METADATA][1] < highest:
        name = f"later than {line}"
    return f"{name}, by {METADATA} up to {highest}" if highest else ""


def _features(link: Connection) -> dict[str, str]:
    found = admin.features(link)
    levels = ", ".join(f"{name} {level}" for name, level in sorted(found.finalised.items()))
    told = {"kafka": release_of(found.supported), "feature levels in force": levels}
    return {name: value for name, value in told.items() if value}


def _settings(broker: int, link: Connection) -> dict[str, str]:
    found = admin.describe_config(link, admin.Owner(admin.ResourceType.BROKER, str(broker)), _SETTINGS)
    return {name: found[name].value for name in _SETTINGS if name in found and found[name].value}


def _quorum(link: Connection) -> dict[str, str]:
    voters = sorted(voter.node for voter in queries.quorum(link).voters)
    return {"controllers": f"{len(voters)}: {', '.join(map(str, voters))}"}


def _joined(values: Mapping[int, str]) -> str:
    """Return the value if all brokers agree, else each value with its brokers."""
    by_value: dict[str, list[str]] = {}
    for broker, value in values.items():
        by_value.setdefault(value, []).append(str(broker))
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} (broker {', '.join(who)})" for value, who in by_value.items())
