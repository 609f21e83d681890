"""Tests of the errors that `ackproof sql` makes of Spark's exceptions, with a stand-in for the session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException

from ackproof.base.errors import AckproofError, AuditFailed, BadInput
from ackproof_lab.sql import views as room


def session(error: Exception) -> SimpleNamespace:
    """Return a stand-in for a local Spark session that raises `error` when views are made or rows are collected."""

    def fail(*_: object) -> None:
        raise error

    frame = SimpleNamespace(collect=fail, columns=["a"])
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master="local[1]"),
        dataSource=SimpleNamespace(register=lambda _: None),
        catalog=SimpleNamespace(dropTempView=fail),
        sql=lambda _: frame,
    )


def register(spark) -> None:
    room.register(spark, {})


def ask(spark) -> None:
    room.ask(spark, room.Views(), "select 1", None)


BANANA = "spark.sql.ansi.enabled should be boolean, but was banana"


@pytest.mark.parametrize("step", [register, ask])
@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (IllegalArgumentException(f"{BANANA}\n\nJVM stacktrace:\nat x.y"), BadInput, BANANA),
        (PySparkException("it is gone\n\tat x.y"), AuditFailed, "it is gone"),
    ],
)
def test_what_spark_raises_is_one_line(step, error, kind, said) -> None:
    with pytest.raises(AckproofError) as raised:
        step(session(error))
    assert type(raised.value) is kind
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "error", [ValueError("year 58000 is out of range"), OverflowError("date value out of range")]
)
def test_a_time_that_python_cannot_hold_is_one_line(error) -> None:
    with pytest.raises(BadInput, match=f"Python cannot hold .{error}.: ask"):
        ask(session(error))
