"""The plugin as others have it: a wheel in a fresh environment, in a project with folders of the same names as ours."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.processes import find_children

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

SWALLOWS = """\
class OrderSender:
    def __init__(self, producer):
        self.producer = producer

    def send(self, order):
        self.producer.produce("orders", order)
        self.producer.flush()
"""
RETRIES = """\
class OrderSender:
    def __init__(self, producer):
        self.producer = producer

    def send(self, order):
        outcome = []
        while not outcome or outcome[-1] is not None:
            self.producer.produce("orders", order, on_delivery=lambda error, _: outcome.append(error))
            self.producer.flush()
"""
EXAMPLE = """\
@pytest.mark.kafka(brokers=3, topics={"orders": {"config": {"min.insync.replicas": 2}}})
def test_no_order_is_lost_when_the_leader_dies(kafka_cluster, ledger):
    settings = {"bootstrap.servers": kafka_cluster.bootstrap, "message.timeout.ms": 1000}
    sender = OrderSender(ledger.producer(Producer(settings)))
    for number in range(100):
        if number == 50:
            kafka_cluster.kill("leader(orders/0)")
        sender.send(f"order-{number}")
    ledger.assert_durable()
"""
"""As the README shows it, below the imports."""
EXPERIMENT = """\
name: calm
cluster: {brokers: 1, controllers: 1}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 500/s}, duration: 500ms}
"""
FILES = {
    "pytest.ini": "[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\npythonpath = .\n",
    "compose.yaml": "services: {}\ntopics: {}\n",
    "harness/__init__.py": "WHOSE = 'theirs'\n",
    "reports/__init__.py": "WHOSE = 'theirs'\n",
    "tests/__init__.py": "",
    "tests/values.yml": "topics: [\n",
    "tests/test_names.py": """\
        import ackproof, harness, reports, tests

        def test_nothing_of_theirs_is_ours():
            assert harness.WHOSE == reports.WHOSE == "theirs"
            assert "site-packages" in ackproof.__file__
        """,
    "tests/test_orders.py": "import pytest\nfrom confluent_kafka import Producer\n"
    "from harness.orders import OrderSender\n\n\n" + EXAMPLE,
    "experiments/calm.yaml": EXPERIMENT,
}


def _run(*words: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "PYTHON", "VIRTUAL_ENV"))
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a fresh environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("wheel")
    steps: list[tuple[str | Path, ...]] = [
        (UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT),
        (UV, "venv", "--python", sys.executable, folder / "venv"),
    ]
    for step in steps:
        done = _run(*step, cwd=folder)
        assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("ackproof-*.whl")
    found = folder / "venv" / "bin" / "python"
    install = (
        UV,
        "pip",
        "install",
        "--python",
        found,
        "-c",
        ROOT / "requirements" / "dev.lock",
        wheel,
        "pytest",
    )
    done = _run(*install, "--offline", cwd=folder)
    if done.returncode:  # the cache of uv is cold
        done = _run(*install, cwd=folder)
    assert done.returncode == 0, done.stderr
    archive = _run(
        found,
        "-c",
        "from ackproof.audit.archive import Archive; from ackproof.audit.jvm import jars\n"
        "from ackproof.provision.java import find_java; print(Archive.of(find_java(), jars()).path)",
        cwd=folder,
    )
    assert archive.returncode == 0, archive.stderr
    yield found
    # Made for the jars of this environment, and of no use without it.
    Path(archive.stdout.strip()).unlink(missing_ok=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def test_a_planted_delivery_bug_is_found_and_without_it_all_passes(python: Path, project: Path) -> None:
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--basetemp", project / "tmp")
    (project / "harness" / "orders.py").write_text(SWALLOWS)
    found = _run(python, *words, "tests", cwd=project)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "1 failed, 1 passed" in found.stdout
    for said in ("order-50", "_MSG_TIMED_OUT", "swallowed: ", "kill leader(orders/0)", "-- broker-1"):
        assert said in found.stdout, found.stdout
    assert "lost: " not in found.stdout
    assert list(project.glob("tmp/*/kafka/ledger/produced/client=p0/part-*.parquet"))

    (project / "harness" / "orders.py").write_text(RETRIES)
    passed = _run(python, *words, cwd=project)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "3 passed" in passed.stdout
    assert "report: runs/" in passed.stdout
    (report,) = project.glob("runs/*-pytest/report.html")
    assert report.stat().st_size > 10_000
    assert [child for child in find_children() if project in child.directory.parents] == []


def test_the_readme_shows_what_is_tested() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if "kafka_cluster" in readme:
        assert EXAMPLE in readme
