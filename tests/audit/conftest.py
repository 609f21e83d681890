from __future__ import annotations

import pytest

from ackproof.audit.pipeline import audit_all
from ackproof.audit.session import spark_context
from ackproof.audit.units import Limits

from .ledgers import write_ledger
from .local import LocalContext
from .local_run import BUCKETS, READ, SENT


@pytest.fixture(scope="session")
def context():
    """The one SparkContext of these tests; `audit.run` finds it by itself."""
    with spark_context("local[2]", lambda _: None) as started:
        yield started


@pytest.fixture
def audit(context):
    """`ackproof.audit.run` in the shared session."""
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
    def run(*directories, context=LocalContext):
        return audit_all(directories, context, lambda _: None, limits)

    return run
