"""The audit and the plain one (reference.py) find the same in ledgers drawn by Hypothesis."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ackproof.audit.results import AuditResult
from ackproof.audit.units import Limits

from .agreement import WAYS, DrawnDirectory, agree, directories, write
from .local import audited

EXAMPLES = int(os.environ.get("ACKPROOF_EXAMPLES", settings.default.max_examples))
"""Number of ledgers audited in one way without Spark. Nightly tests audit three times as many in each way, and some
with Spark."""


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=directories(), seed=st.integers(0, 2**32))
def test_both_say_the_same(drawn: DrawnDirectory, seed: int) -> None:
    compare_locally("buckets in ranges", drawn, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=directories(), seed=st.integers(0, 2**32))
def test_both_say_the_same_in_each_way(way, drawn: DrawnDirectory, seed: int) -> None:
    compare_locally(way, drawn, seed)


@pytest.mark.nightly  # with every push the test above compares without Spark, and planted ledgers are audited by Spark
@pytest.mark.audit
@pytest.mark.parametrize("way", WAYS)
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # what fails is made smaller by the test above, without Spark
)
@given(batch=st.lists(directories(), min_size=10, max_size=10), seed=st.integers(0, 2**32))
def test_both_say_the_same_of_many_directories_in_one_job(
    audit, way, batch: list[DrawnDirectory], seed: int
) -> None:
    limits = replace(Limits(**WAYS[way]), task_rows=50_000)  # a task costs 50 ms
    compare(batch, seed, lambda paths: audit(*paths, limits=limits))


def compare_locally(way: str, drawn: DrawnDirectory, seed: int) -> None:
    compare([drawn], seed, lambda paths: audited(paths, limits=Limits(**WAYS[way])))


def compare(batch: list[DrawnDirectory], seed: int, run: Callable[[list[Path]], list[AuditResult]]) -> None:
    shuffle = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="ackproof-agreement-") as root:
        paths = [write(Path(root) / str(number), drawn, shuffle) for number, drawn in enumerate(batch)]
        for drawn, path, result in zip(batch, paths, run(paths), strict=True):
            agree(drawn, path, result)
