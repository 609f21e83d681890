"""A service under test: starts its instances, waits until it has caught up with its input, and reads its output back.

An instance of level 0 is stopped by SIGTERM. An instance that prints events gets the line `stop` on standard input, as
every program of the contract (docs/clients.md).
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.command.adapter import fill_in
from ackproof.clients.command.output import (
    OutputRow,
    ask_sink,
    await_ends,
    ends,
    identity_of,
    read_back,
    write_output,
)
from ackproof.clients.instances import Instance, Instances
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import ServiceSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.service import InstanceEnd, ServiceFile
from ackproof.rundir.timeline import Note, Timeline

_QUIET_S: Final = 3.0
"""Seconds without a new record in the output after which a service has nothing left to do."""
_GOAL_S: Final = 15.0
_STOP_S: Final = 15.0


class Service(Instances):
    """Starts and stops the instances of a service under test in one run. `finish`, at the end of the load, waits until
    the service has caught up and records what it wrote. `partitions`: number of partitions of its input and of its
    output."""

    def __init__(self, spec: ServiceSpec, run: CaseDir, tag: RunTag, bootstrap: str, partitions: int) -> None:
        super().__init__(tag)
        self.spec = spec
        self._run = run
        self._bootstrap = bootstrap
        self._partitions = partitions

    def start(self) -> None:
        """Start all instances. Raises `BadInput` for a program that cannot be started."""
        for _ in range(self.spec.count):
            self.start_instance()

    def start_instance(self, after: Instance | None = None) -> Instance:
        """Start one more instance, and add it to `instances`. `after`, the instance that it replaces, is ignored:
        instances differ only in their names. Raises `BadInput` if its program cannot be started."""
        name = f"s{len(self.instances)}"
        command = fill_in(self.spec.command, self._settings(name))
        folder = self._run.clients / name
        return self.launch(name, command, folder, Path(), tells=self.spec.level > 0, of="workload.service")

    def _settings(self, name: str) -> dict[str, object]:
        spec = self.spec
        output = {} if spec.output is None else {"output": spec.output}
        common = {"role": "service", "client": name, "bootstrap": self._bootstrap, "config": {}}
        return {**common, "input": spec.input, **output, "group": spec.group}

    def await_rest(self, cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
        """Wait until the input does not grow any more (at most 15 s). Then wait until the group has committed the end
        of the input, and the output has not grown for 3 s.

        The second wait ends without an error after `ServiceSpec.settle` + 3 seconds, or once an instance has died.
        Return (topic, partition, high watermark) of the input partitions whose leaders answered.
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
        self.stop_all(_STOP_S)
        return tuple(InstanceEnd(id=one.id, **one.outcome()) for one in self.instances)

    def finish(self, cluster: Cluster, timeline: Timeline, run_id: str) -> None:
        """Let the service catch up, stop it, read its output back, and write the files of `rundir.service`, which also
        say why the output could not be read. Raises OSError if a file cannot be written."""
        timeline.add(Note(note="waiting until the service has caught up"))
        goal = self.await_rest(cluster)
        ended = self.stop()
        spec, problem, reached = self.spec, "", dict[TopicPartition, int]()
        rows: list[OutputRow] = []
        if spec.sink is not None:
            try:
                rows = ask_sink(fill_in(spec.sink, self._settings("sink")))
            except BadInput as error:
                problem = str(error)
        elif spec.output is not None:
            identify = partial(identity_of, where=spec.identity, run_id=run_id)
            rows, reached, problem = read_back(cluster, spec.output, self._partitions, spec.settle, identify)
        write_output(self._run.service_output, rows)
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
    """Start the experiment's service; return None if it has none. Its processes carry the marks `tag`, by
    which a failed run ends them. Raises `BadInput` for a program that cannot be started."""
    if spec.workload.service is None:
        return None
    service = spec.workload.service
    started = Service(service, run, tag, bootstrap, spec.topics[service.input].partitions)
    started.start()
    return started
