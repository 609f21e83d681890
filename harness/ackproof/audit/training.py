"""A process that makes Spark's class-data archive: its JVM does what an audit does, then ends and writes it down."""

from __future__ import annotations

import sys
from typing import Any, cast

import psutil

from ackproof.audit.edge_rdd import RddEdge
from ackproof.audit.session import Where, spark_context
from ackproof.audit.stages import Job
from ackproof.audit.units import Trouble

_END_TIMEOUT_S = 120.0

if __name__ == "__main__":
    with spark_context(
        Where("local[1]"), lambda _: None, f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
    ) as context:
        messages, hand_on = [((share, 0), Trouble(0, OSError())) for share in range(2)], cast("Any", iter)
        RddEdge(context, lambda _: None)(Job("training", cast("Any", messages), hand_on, hand_on, 2))
        (jvm,) = psutil.Process().children()
    jvm.terminate()
    jvm.wait(_END_TIMEOUT_S)
