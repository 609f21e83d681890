"""A process that makes Spark's class-data archive: its JVM does what an audit does, then ends and writes it down."""

from __future__ import annotations

import sys

import psutil

from ackproof.spark.edge_rdd import RddEdge
from ackproof.spark.job import warming
from ackproof.spark.session import Where, spark_context

_END_TIMEOUT_S = 120.0

if __name__ == "__main__":
    with spark_context(
        Where("local[1]"), lambda _: None, f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
    ) as context:
        RddEdge(context, lambda _: None)(warming(2, "builtins:int"))
        (jvm,) = psutil.Process().children()
    jvm.terminate()
    jvm.wait(_END_TIMEOUT_S)
