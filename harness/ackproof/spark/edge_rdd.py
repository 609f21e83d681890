"""A job over a classic session: RDDs, whose elements are Python's from end to end (no SQL, no plans)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ackproof.spark.job import Group, Job, Message
from ackproof.spark.watch import Progress, watched
from ackproof.spark.workers import carried, failed, is_local, provide

if TYPE_CHECKING:
    from pyspark import SparkContext


class RddEdge:
    """One context. Nothing of it is changed but that, where its workers are elsewhere, they get our code."""

    def __init__(self, context: SparkContext, tell: Progress) -> None:
        self._context = context
        self._tell = tell
        provide(context)

    @property
    def cores_elsewhere(self) -> int:
        """A master does not say how many will come."""
        from py4j.protocol import Py4JError

        try:
            return 0 if is_local(self._context.master) else self._context.defaultParallelism
        except (Py4JError, OSError) as error:
            raise failed(error) from error

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        """Run it, in a group of its own."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        name = f"ackproof-{secrets.token_hex(8)}"

        def run() -> list[Message]:
            self._context.setJobGroup(name, f"ackproof audit, {job.what}", interruptOnCancel=True)
            messages = self._context.parallelize(job.groups, len(job.groups)).mapPartitions(carried(job.task))
            if job.judge is None:
                return messages.values().collect()
            return messages.partitionBy(job.partitions, sum).mapPartitions(carried(job.judge)).collect()

        def cancel() -> None:
            self._context.cancelJobGroup(name)

        try:
            return watched(run, cancel, lambda: self._done(name), job.what, self._tell)
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            raise failed(error) from error

    def _done(self, name: str) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        jobs = [job for number in tracker.getJobIdsForGroup(name) if (job := tracker.getJobInfo(number))]
        numbers = [number for job in jobs for number in job.stageIds]
        found = [stage for number in numbers if (stage := tracker.getStageInfo(number))]
        return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)
