from __future__ import annotations

import pytest

from ackproof.audit.session import spark_context


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
