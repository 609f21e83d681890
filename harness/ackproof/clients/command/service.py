"""A service under test: its instances, the wait until it has caught up, and its output read back.

An instance of level 0 is stopped by SIGTERM. One that tells events gets the line `stop` on standard input, as every
program of the contract (docs/clients.md).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import (
    Child,
    ClientProcess,
    RunTag,
    end_all,
    find_members,
    signal_all,
    spawn,
)
from ackproof.base.wait import wait_until
from ackproof.clients.command.adapter import fill_in
from ackproof.clients.command.events import LINES, STOP_LINE
from ackproof.clients.command.output import LAST_WORDS, ask_sink, await_ends, ends, identity_of, read_output
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.service import ServiceSpec
from ackproof.experiment.spec import TopicSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.service import OUTPUT, InstanceEnd, ServiceFile
from ackproof.rundir.timeline import Note, Timeline

_QUIET_S: Final = 3.0
"""Seconds without a new record in the output after which a service has nothing left to do."""
_GOAL_S: Final = 15.0
_STOP_S: Final = 15.0


@dataclass
class Instance:
    """One process of a service. `control`: writing end of its standard input, -1 once closed. `tells`: it is above
    level 0.
    """

    id: str
    child: Child
    started_ns: int
    folder: Path
    control: int
    tells: bool
    asked: bool = False
    killed: bool = False
    """True once a fault killed it."""
    successor: str | None = None

    def stop(self) -> None:
        """Ask it to stop. Does nothing if it has ended."""
        if self.child.poll() is not None:
            return
        self.asked = True
        if not self.tells:
            self.child.signal(signal.SIGTERM)
            return
        with suppress(BrokenPipeError):
            os.write(self.control, STOP_LINE)

    def end(self) -> InstanceEnd:
        """Return how it ended; SIGKILL it if it runs. Close its standard input."""
        status = self.child.poll()
        if status is None:
            status = self.child.kill()
        if self.control >= 0:
            os.close(self.control)
            self.control = -1
        output = self.folder / "output.log"
        words = output.read_text(errors="replace")[-LAST_WORDS:].strip() if output.exists() else ""
        return InstanceEnd(
            id=self.id,
            pid=self.child.pid,
            started_ns=self.started_ns,
            status=status,
            asked=self.asked,
            killed=self.killed,
            last_words=words,
        )


class Service:
    """The instances of a service in a run. `partitions`: number of the input's partitions, and of the output's.

    `instances`: in the order of their start, also those that have ended.
    """

    def __init__(self, spec: ServiceSpec, run: CaseDir, tag: RunTag, bootstrap: str, partitions: int) -> None:
        self.spec = spec
        self.instances: list[Instance] = []
        self._run = run
        self._tag = tag
        self._bootstrap = bootstrap
        self._partitions = partitions

    def start(self) -> None:
        """Start all instances. Raises `BadInput` for a program that cannot be started."""
        for _ in range(self.spec.count):
            self.start_instance()

    def start_instance(self) -> Instance:
        """Start one more instance, and add it to `instances`. Raises `BadInput` if its program cannot be started."""
        name = f"s{len(self.instances)}"
        folder = self._run.clients / name
        folder.mkdir(parents=True)
        command = fill_in(self.spec.command, self._settings(name))
        reading, writing = os.pipe()  # at level 0 too: end of standard input means that the harness is gone
        started_ns = time.monotonic_ns()
        try:
            child = spawn(
                command,
                run=self._tag,
                role=name,
                cwd=Path(),
                stdout=folder / LINES,
                stderr=folder / "output.log",
                stdin=reading,
            )
        except OSError as error:
            raise BadInput(f"workload.service: {command[0]} cannot be started: {error.strerror}") from error
        finally:
            os.close(reading)
        self.instances.append(Instance(name, child, started_ns, folder, writing, tells=self.spec.level > 0))
        return self.instances[-1]

    def _settings(self, name: str) -> dict[str, object]:
        spec = self.spec
        output = {} if spec.output is None else {"output": spec.output}
        common = {"role": "service", "client": name, "bootstrap": self._bootstrap, "config": {}}
        return {**common, "input": spec.input, **output, "group": spec.group}

    def dead(self) -> Iterator[Instance]:
        """Yield the instances that ended by themselves."""
        for one in self.instances:
            if one.child.poll() is not None and not one.asked and not one.killed:
                yield one

    # -- for faults (`faults.context.Processes`) ---------------------------------------------------------------------

    def running(self) -> dict[str, ClientProcess]:
        """Return the instances that run, by id, in the order of their start."""
        return {
            one.id: ClientProcess(one.id, one.child.pid, one.child.started)
            for one in self.instances
            if one.child.poll() is None
        }

    def members(self, client_id: str) -> list[ClientProcess]:
        """Return all living processes of an instance."""
        found = find_members(self._tag.run_id, client_id)
        return [ClientProcess(client_id, member.pid, member.started) for member in found]

    def _find(self, client_id: str) -> Instance:
        return {one.id: one for one in self.instances}[client_id]

    def kill(self, client_id: str) -> None:
        """SIGKILL an instance, and the processes that it started."""
        instance = self._find(client_id)
        instance.killed = True
        end_all(find_members(self._tag.run_id, client_id))
        instance.child.kill()

    def signal(self, client_id: str, number: int) -> None:
        """Send the signal `number` to all processes of an instance."""
        signal_all(find_members(self._tag.run_id, client_id), number)

    def replace(self, client_id: str) -> str:
        """Start an instance in place of one that has ended. Return its id."""
        instance = self._find(client_id)
        instance.successor = self.start_instance().id
        return instance.successor

    def successor(self, client_id: str) -> str | None:
        """Return the id that now stands for this one; None while a killed one has no successor."""
        instance = self._find(client_id)
        while instance.successor is not None:
            instance = self._find(instance.successor)
        return None if instance.killed else instance.id

    def at_work(self, client_id: str) -> bool:
        """Return True if an instance runs and, above level 0, has told something."""
        instance = self._find(client_id)
        lines = instance.folder / LINES
        return instance.child.poll() is None and (not instance.tells or lines.stat().st_size > 0)

    def await_rest(self, cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
        """Wait until the group has committed the end of the input, and the output has not grown for 3 s; at most
        `settle` seconds, and not once an instance has died. Returns (topic, partition, high watermark) of the input.
        """
        spec = self.spec
        goal, _ = await_ends(cluster, spec.input, self._partitions, _GOAL_S)
        last, since = -1, time.monotonic()

        def at_rest() -> bool:
            nonlocal last, since
            size = 0 if spec.output is None else sum(ends(cluster, spec.output).values())
            now = time.monotonic()
            if size != last:
                last, since = size, now
            if now - since < _QUIET_S or any(self.dead()):
                return any(self.dead())
            committed = ask_coordinator(cluster, spec.group).of_partition
            return all(committed.get(place, 0) >= end for place, end in goal.items())

        with suppress(WaitTimeout):  # the judge sees what is left
            wait_until(
                at_rest, what="the service to catch up", timeout_s=spec.settle + _QUIET_S, interval_s=0.3
            )
        return tuple((*place, end) for place, end in sorted(goal.items()))

    def stop(self) -> tuple[InstanceEnd, ...]:
        """Stop all instances, with SIGKILL after 15 s. Return how each ended, in the order of `instances`."""
        for one in self.instances:
            one.stop()
        with suppress(WaitTimeout):
            wait_until(
                lambda: all(one.child.poll() is not None for one in self.instances),
                what="the service to stop",
                timeout_s=_STOP_S,
            )
        return tuple(one.end() for one in self.instances)

    def finish(self, cluster: Cluster, timeline: Timeline, run_id: str) -> None:
        """Let the service catch up, stop it, read its output back, and write the files of `rundir.service`. An output
        that cannot be read is noted in them.
        """
        timeline.add(Note(note="waiting until the service has caught up"))
        goal = self.await_rest(cluster)
        ended = self.stop()
        spec, problem, reached = self.spec, "", dict[TopicPartition, int]()
        rows: list[tuple[int, int, int, int]] = []
        try:
            if spec.sink is not None:
                rows = ask_sink(fill_in(spec.sink, self._settings("sink")))
            elif spec.output is not None:
                reached, unrest = await_ends(cluster, spec.output, self._partitions, spec.settle)
                identify = partial(identity_of, where=spec.identity, run_id=run_id)
                rows, problem = read_output(self._bootstrap, reached, identify)
                problem = "; ".join(filter(None, (unrest, problem)))
        except (BadInput, KafkaException) as error:
            problem = str(error)
        columns = np.array(rows, np.int64).reshape(len(rows), len(OUTPUT)).T
        arrays = [pa.array(column).cast(kind) for column, kind in zip(columns, OUTPUT.types, strict=True)]
        with storage.create_parquet(self._run.service_output, OUTPUT) as file:
            file.write_table(pa.Table.from_arrays(arrays, schema=OUTPUT))
        committed = ask_coordinator(cluster, spec.group)
        document = ServiceFile(
            instances=ended,
            committed=committed,
            ends=goal,
            output_ends=tuple((*place, end) for place, end in sorted(reached.items())),
            problem=problem,
        )
        document.save(self._run.service)


def start_service(spec: ExperimentSpec, run: CaseDir, tag: RunTag, bootstrap: str) -> Service | None:
    """Start the experiment's service; None without one. Its processes carry the run's marks, by which a run that fails
    ends them. Raises `BadInput`.
    """
    if spec.workload.service is None:
        return None
    service = spec.workload.service
    started = Service(service, run, tag, bootstrap, spec.topics[service.input].partitions)
    started.start()
    return started


def output_topics(spec: ExperimentSpec) -> dict[str, TopicSpec]:
    """Return the output topic of the experiment's service, with the shape of its input; none without one."""
    service = spec.workload.service
    if service is None or service.output is None:
        return {}
    return {service.output: spec.topics[service.input]}
