"""Builds the settings of the producers and live readers of a run from the experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ackproof.base.processes import RunTag
from ackproof.clients.contract import (
    ConfigValue,
    ProducerSettings,
    ReaderSettings,
    Rotation,
    client_adapter,
)
from ackproof.experiment.client import ClientChoice
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.partition import TopicPartition


def describe_clients(spec: ExperimentSpec) -> dict[str, str]:
    """Return the client library and version (`name version`) of producers, of live readers and of each consumer group,
    for `environment` of `case.json`. Keys: `client of producers`, `client of readers`, `client of group NAME`. Without
    live readers, their key is missing; share groups have none.

    The function also makes the libraries ready: a Java client's jars and class-data archive are in the cache before the
    load begins. Raises what the adapter's `installed_library` raises: for Java `BadInput`, `ProvisionFailed`,
    `AckproofError`.
    """
    sides = {"client of producers": spec.workload.producers.client}
    if spec.workload.consumers.live:
        sides["client of readers"] = spec.workload.consumers.client
    sides |= {f"client of group {name}": group.client for name, group in spec.workload.groups.items()}
    kafka = spec.cluster.kafka
    return {
        name: " ".join(client_adapter(one.library).installed_library(one.release_for(kafka)))
        for name, one in sides.items()
    }


def common_fields(
    name: str,
    choice: ClientChoice,
    kafka: KafkaBuild,
    tag: RunTag,
    clock: RunClock,
    places: tuple[TopicPartition, ...],
    config: dict[str, ConfigValue],
) -> dict[str, Any]:
    """Return the fields that all clients have, for the constructor of their settings. `name`: the client's id. `kafka`:
    the cluster's build, which decides the release of Java clients if `choice` names none."""
    library = client_adapter(choice.library).installed_library(choice.release_for(kafka))
    return {
        "client": name,
        "run_id": tag.run_id,
        "case_dir": str(tag.case_dir.absolute()),
        "places": places,
        "origin_ns": clock.origin_ns,
        "config": config,
        "library": library.name,
        "library_version": library.version,
        "command": choice.command,
    }


@dataclass(frozen=True)
class SettingsMaker:
    """Builder of the settings of the clients of one run. Methods raise `BadInput` for a setting that only the harness
    may set.

    `places`: all partitions; `written`: partitions that producers write to. `seed`: decides at which partition
    producers begin. `kafka`: the cluster's build, which decides the release of Java clients if the experiment names
    none. `readers_tell`: readers report from which brokers they fetch. `on_demand`: producers send only on request,
    until they are freed. `rotation`: sizes of ledger parts.
    """

    spec: WorkloadSpec
    places: tuple[TopicPartition, ...]
    written: tuple[TopicPartition, ...]
    bootstrap: str
    tag: RunTag
    clock: RunClock
    seed: int
    kafka: KafkaBuild
    rotation: Rotation
    readers_tell: bool
    on_demand: bool

    def producer_config(self, name: str, transactional_id: str = "") -> dict[str, ConfigValue]:
        """Return the library's configuration of the producer with id `name`. `transactional_id` '': no transactions."""
        adapter = client_adapter(self.spec.producers.client.library)
        return adapter.producer_config(self.spec.producers, self.bootstrap, name, transactional_id)

    def reader_config(self, number: int, group: str = "") -> dict[str, ConfigValue]:
        """Return the library's configuration of live reader `number`, from 0. `group`: id of the reader whose group.id
        this reader shares, the first in its chain of replacements; '': a group.id of its own."""
        spec = self.spec.consumers
        adapter = client_adapter(spec.client.library)
        return adapter.reader_config(
            spec.config_of(number), spec.isolation, self.bootstrap, f"r{number}", group=group
        )

    def producer(self, number: int, transactional_id: str) -> ProducerSettings:
        """Return the settings of producer `number`, from 0. `transactional_id` '': no transactions."""
        spec, service, name = self.spec.producers, self.spec.service, f"p{number}"
        config = self.producer_config(name, transactional_id)
        return ProducerSettings(
            **common_fields(name, spec.client, self.kafka, self.tag, self.clock, self.written, config),
            producer=number,
            first_place=(self.seed + number) % len(self.written),
            value_size=spec.value_size,
            rate=None if spec.rate is None else spec.rate / spec.count,
            chunk_rows=self.rotation.chunk_rows,
            transaction_size=spec.transaction_size or 0,
            abort_share=spec.abort_share,
            on_demand=self.on_demand,
            keys=spec.keys or 0,
            stamps_from_ns=self.clock.offset_ns,
            tombstone_every=spec.tombstone_every or 0,
            identity="" if service is None or service.identity == "value" else service.identity,
        )

    def reader(self, number: int, slot: int) -> ReaderSettings:
        """Return the settings of live reader `number`, from 0.

        `slot`: number of the first reader in its chain of replacements; its own number if it replaces none. A reader
        that starts at committed offsets uses that reader's group.
        """
        spec, name = self.spec.consumers, f"r{number}"
        group = f"r{slot}" if spec.start == "committed" else name
        config = self.reader_config(number, group)
        return ReaderSettings(
            **common_fields(name, spec.client, self.kafka, self.tag, self.clock, self.places, config),
            process=name,
            tells=self.readers_tell,
            reader=number,
            isolation=spec.isolation,
            commit_s=spec.commit_every,
            from_committed=spec.start == "committed",
            committed=self.spec.producers.transaction_size is not None and spec.isolation == "read_committed",
            flush_s=self.rotation.flush_s,
            flush_rows=self.rotation.flush_rows,
        )
