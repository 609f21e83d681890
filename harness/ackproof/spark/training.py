"""A process that makes Spark's class-data archive: its JVM does what an audit does, then ends and writes it down."""

from __future__ import annotations

import sys
from typing import Any, cast

import psutil

from ackproof.spark.edge_rdd import RddEdge
from ackproof.spark.job import Job
from ackproof.spark.session import Where, spark_context

_END_TIMEOUT_S = 120.0

if __name__ == "__main__":
    with spark_context(
        Where("local[1]"), lambda _: None, f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
    ) as context:
        messages, hand_on = [((number, 0), "a message") for number in range(2)], cast("Any", iter)
        RddEdge(context, lambda _: None)(Job("training", messages, hand_on, hand_on, 2))
        (jvm,) = psutil.Process().children()
    jvm.terminate()
    jvm.wait(_END_TIMEOUT_S)
