"""Tests of Kafka builds in containers: a user's image, an image that does not start, nodes that change their image."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.cluster.admin import features
from ackproof.cluster.containers.engine import Engine
from ackproof.cluster.install import Installation
from ackproof.provision.jars import kafka_jars
from faultbench import Bench

from .conftest import KAFKA

pytestmark = pytest.mark.docker
CALM = """\
name: calm
backend: docker
cluster: {{kafka: {kafka}, brokers: 1, controllers: 1}}
topics: {{events: {{replication_factor: 1}}}}
workload: {{producers: {{rate: 500/s}}, duration: 1s}}
expect: [{{lost: 0}}]
"""


@pytest.fixture
def image(engine: Engine) -> Iterator[Callable[[str], str]]:
    """Function that builds an image from lines of a Dockerfile; the image is removed at the end of the test."""
    made: list[str] = []

    def make(lines: str) -> str:
        name = f"ackproof-test/kafka:{len(made)}"
        engine.client.images.build(fileobj=io.BytesIO(lines.encode()), tag=name, rm=True, forcerm=True)
        made.append(name)
        return name

    yield make
    for name in made:
        engine.client.images.remove(name, force=True)


def _run(tmp_path: Path, kafka: str) -> int:
    file = tmp_path / "calm.yaml"
    file.write_text(CALM.format(kafka=kafka), encoding="utf-8")
    return main_code(["run", str(file), "--out", str(tmp_path / "runs")])


def test_an_image_of_ones_own_is_used_as_it_is(tmp_path: Path, image: Callable[[str], str]) -> None:
    name = image(f"FROM ackproof/kafka:{KAFKA}\nLABEL mine=yes\n")
    assert _run(tmp_path, f'{{image: "{name}"}}') == 0
    assert name in (tmp_path / "runs" / "latest" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('CMD ["sh", "-c", "echo no such thing; exit 3"]', "does not start a node .*no such thing"),
        (
            "USER root\nRUN rm -r /opt/kafka/libs",
            "has no /opt/kafka/libs: it does not follow the conventions",
        ),
    ],
)
def test_an_image_that_is_no_kafka(
    tmp_path: Path, image: Callable[[str], str], capsys: pytest.CaptureFixture[str], lines: str, said: str
) -> None:
    name = image(f"FROM ackproof/kafka:{KAFKA}\n{lines}\n")
    assert _run(tmp_path, f'{{image: "{name}"}}') == 254
    told = capsys.readouterr().err
    assert re.search(said, told), told


@pytest.mark.nightly  # an image of one's own runs with every push
def test_nodes_go_on_in_containers_of_another_image(
    tmp_path: Path, installed: Callable[[], Installation], image: Callable[[str], str]
) -> None:
    """The upgrade keeps the release and changes the image; `test_an_upgrade` below changes the release."""
    name = image(f"FROM ackproof/kafka:{KAFKA}\nLABEL mine=yes\n")
    with Bench(tmp_path, backend="docker", installed=installed()) as bench:
        bite = bench.bite(f'upgrade: {{to: {{image: "{name}"}}, finalise: false}}')
        assert bite.good, bite
        images = {
            one.container.attrs["Config"]["Image"]
            for one in bench.cluster._ground.containers.values()  # type: ignore[attr-defined]
        }
        assert images == {name}


@pytest.mark.nightly
@pytest.mark.parametrize("old", ["4.3.1", "3.9.2"])
def test_an_upgrade(tmp_path: Path, engine: Engine, old: str) -> None:
    from ackproof.cluster.containers.build import build
    from ackproof.cluster.install import install
    from ackproof.experiment.kafka import KafkaBuild

    build(engine, old)
    before, after = install(KafkaBuild(old)), install(KafkaBuild(KAFKA))
    assert before.checkpoint != after.checkpoint
    with Bench(tmp_path, backend="docker", installed=before, kafka=old) as bench:
        bite = bench.bite(f'upgrade: {{to: "{KAFKA}"}}')
        assert bite.good, bite
        told = features(bench.cluster.running_links()[1])
        assert told.finalised["metadata.version"] == told.supported["metadata.version"][1]


@pytest.mark.nightly
def test_an_image_is_made_of_a_builds_jars(tmp_path: Path, engine: Engine) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    for jar in kafka_jars("4.1.2").classpath:
        shutil.copy2(jar, folder)
    before = _tags(engine)
    assert _run(tmp_path, f"{{path: {folder}}}") == 0
    (made,) = _tags(engine) - before
    assert made.startswith("ackproof/kafka:4.1.2-")
    engine.client.images.remove(made, force=True)


def _tags(engine: Engine) -> set[str]:
    return {tag for one in engine.client.images.list("ackproof/kafka") for tag in one.tags}
