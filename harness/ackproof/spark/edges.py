"""Two ways to run a job on Spark: over RDDs (classic), or over Arrow batches of pickled messages (Connect lacks
RDDs).
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ackproof.spark.job import Group, Job, Message, Progress, await_job
from ackproof.spark.workers import audit_failure, is_local, send_code, wrap_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo


class RddEdge:
    """Runs jobs on a classic SparkContext: called with a job, it returns the job's messages. If the workers are remote,
    the constructor sends them ackproof's code. No setting of the context is changed. `tell` gets messages on the
    progress."""

    def __init__(self, context: SparkContext, tell: Progress) -> None:
        self._context = context
        self._tell = tell
        send_code(context)

    @property
    def cores_elsewhere(self) -> int:
        """Number of cores of the remote workers that have registered so far; 0 for a local master.

        A standalone master does not say how many will come. Raises `AuditFailed` if Spark died.
        """
        from py4j.protocol import Py4JError

        try:
            return 0 if is_local(self._context.master) else self._context.defaultParallelism
        except (Py4JError, OSError) as error:
            raise audit_failure(error) from error

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        name = f"ackproof-{secrets.token_hex(8)}"

        def run() -> list[Message]:
            self._context.setJobGroup(name, f"ackproof audit, {job.what}", interruptOnCancel=True)
            messages = self._context.parallelize(job.groups, len(job.groups)).mapPartitions(
                wrap_task(job.task)
            )
            if job.judge is None:
                return messages.values().collect()
            return messages.partitionBy(job.partitions, sum).mapPartitions(wrap_task(job.judge)).collect()

        def cancel() -> None:
            self._context.cancelJobGroup(name)

        try:
            return await_job(run, cancel, lambda: self._done(name), job.what, self._tell)
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            raise audit_failure(error) from error

    def _done(self, name: str) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        jobs = [job for number in tracker.getJobIdsForGroup(name) if (job := tracker.getJobInfo(number))]
        numbers = [number for job in jobs for number in job.stageIds]
        found = [stage for number in numbers if (stage := tracker.getStageInfo(number))]
        return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)


_KEYED = "task int, message binary"
_PLAIN = "message binary"


class FrameEdge:
    """Runs jobs on a Spark Connect session: called with a job, it returns the job's messages. The constructor sends
    ackproof's code to the workers. No setting of the session is changed. `tell` gets messages on the progress."""

    cores_elsewhere = 0  # unknown: a Connect server does not tell

    def __init__(self, session: SparkSession, tell: Progress) -> None:
        self._session = session
        self._tell = tell
        send_code(session)

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        from pyspark.errors import PySparkException

        name, seen = f"ackproof-{secrets.token_hex(8)}", dict[int, tuple[int, int]]()

        def hear(stages: Iterable[StageInfo] | None, **_: object) -> None:
            seen.update(
                {stage.stage_id: (stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()}
            )

        def done() -> tuple[int, int]:
            now = list(seen.values())
            return sum(some for some, _ in now), sum(of for _, of in now)

        def run() -> list[Message]:
            self._session.addTag(name)
            found = self._planned(job).select("message").toArrow()
            messages = [pickle.loads(message) for message in found["message"].to_pylist()]
            return messages if job.judge is not None else [message for _, message in messages]

        handler = cast("ProgressHandler", hear)
        self._session.registerProgressHandler(handler)
        try:
            return await_job(run, lambda: self._session.interruptTag(name), done, job.what, self._tell)
        except (PySparkException, OSError) as error:
            raise audit_failure(error) from error
        finally:
            self._session.removeProgressHandler(handler)

    def _planned(self, job: Job[Group, Message]) -> DataFrame:
        """Return the query plan of a job: `job.task` is called once for each group. If the job has a judge, `job.judge`
        is then called once for each judging task that has messages.

        A row holds only the number of its group. The groups themselves are pickled with the function that Spark sends
        to the workers. Each group has a Spark partition of its own. The plan fixes the number of partitions and the
        partition of each row, so adaptive query execution changes nothing.
        """
        units, count = [pickle.dumps(group) for group in job.groups], len(job.groups)
        task, judges = wrap_task(job.task), job.partitions or 1

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for key, message in task(
                pickle.loads(units[row]) for batch in batches for row in batch["id"].to_pylist()
            ):
                of = pa.array([sum(key) % judges], pa.int32())
                message_column = pa.array([pickle.dumps((key, message))], pa.binary())
                yield pa.record_batch([of, message_column], names=["task", "message"])

        messages = self._session.range(0, count, 1, count).mapInArrow(work, _KEYED)
        if job.judge is None:
            return messages
        judge = wrap_task(job.judge)

        def of_task(table: pa.Table) -> pa.Table:
            found = judge(pickle.loads(message) for message in table["message"].to_pylist())
            return pa.table({"message": pa.array([pickle.dumps(message) for message in found], pa.binary())})

        spread = messages.repartitionById(job.partitions, "task")
        return spread.groupBy("task").applyInArrow(of_task, _PLAIN)
