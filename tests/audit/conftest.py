from __future__ import annotations

import os

import pytest

from ackproof.audit.pipeline import audit_all
from ackproof.audit.units import Limits
from ackproof.spark.session import SparkTarget, spark_context

from ..support.s3 import CREDENTIALS
from .ledgers import write_ledger
from .local import BUCKETS, READ, SENT, LocalEdge

# Spark's workers have the environment of the test that starts Spark, whichever that is.
os.environ.update(CREDENTIALS)


@pytest.fixture(scope="session")
def context():
    """Start one local SparkContext for the test session. `audit.run` uses the active context."""
    with spark_context(SparkTarget("local[2]"), lambda _: None) as started:
        yield started


@pytest.fixture
def audit(context):
    """Return a function that calls `ackproof.audit.run` on directories, with the shared SparkContext."""
    from ackproof import audit

    def run(*directories, **options):
        return audit.run(list(directories), **options)

    return run


@pytest.fixture(params=[Limits(), BUCKETS], ids=["whole", "buckets"])
def limits(request):
    return request.param


@pytest.fixture
def ledger(tmp_path):
    return write_ledger(tmp_path / "case", SENT, READ)


@pytest.fixture
def run(limits):
    def run(*directories, edges=LocalEdge):
        return audit_all(directories, edges, lambda _: None, limits)

    return run
