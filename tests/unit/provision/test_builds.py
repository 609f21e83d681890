"""Tests of finding a build below a path: it is complete, or refused in one line with cause and remedy."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import KafkaBuild
from ackproof.provision import jars, maven, releases
from ackproof.provision.builds import find_build, read_patch
from ackproof.provision.byteman import Misfit, RuleProblem
from ackproof.provision.cache import sha256
from ackproof.provision.jars import identify_build, is_cached, kafka_jars, prepare_jars
from ackproof.provision.progress import ProvisionFailed
from kafka_build import NAMES, write_build, write_jar

from .conftest import VERSION, Machine


def in_source_tree(folder: Path) -> Path:
    """Write jars where `./gradlew jar` leaves them in a source tree: each module's own jars, and dependencies in
    `core`. Return the tree."""
    (folder / "settings.gradle").parent.mkdir(parents=True, exist_ok=True)
    (folder / "settings.gradle").write_text("")
    version = "4.9.0-SNAPSHOT"
    write_build(folder / "core/build/libs", names=NAMES[:1])
    write_build(folder / "clients/build/libs", names=NAMES[1:2])
    write_build(folder / "group-coordinator/group-coordinator-api/build/libs", names=NAMES[2:3])
    write_build(folder / "core/build/dependant-libs-2.13.18", names=NAMES[2:])
    for name in (f"kafka-clients-{version}-test.jar", f"kafka-clients-{version}-sources.jar"):
        write_jar(folder / "clients/build/libs" / name, {})
    return folder


def as_tgz(folder: Path) -> Path:
    path = folder.parent / "kafka_2.13-4.9.0-SNAPSHOT.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"kafka_2.13-4.9.0-SNAPSHOT/libs/{file.name}")
        evil = tarfile.TarInfo("../libs/../../evil.jar")
        evil.size = 1
        tar.addfile(evil, io.BytesIO(b"x"))
    return path


@pytest.mark.parametrize(
    "place",
    [
        lambda folder: write_build(folder / "flat"),
        lambda folder: write_build(folder / "dist/libs").parent,
        lambda folder: in_source_tree(folder / "kafka"),
        lambda folder: as_tgz(write_build(folder / "packed")),
    ],
    ids=["flat", "distribution", "source tree", "tgz"],
)
def test_the_jars_below_a_path(machine: Machine, tmp_path: Path, place: Callable[[Path], Path]) -> None:
    found = find_build(place(tmp_path))
    assert [one.name for one in found.jars] == sorted(name.format("4.9.0-SNAPSHOT") for name in NAMES)
    assert (found.version, found.full_version, found.commit) == ("4.9.0", "4.9.0-SNAPSHOT", "abc123")
    assert found.logs
    assert not (tmp_path / "evil.jar").exists() and not list(machine.cache.glob("**/evil.jar"))


@pytest.mark.parametrize("commit", ["unknown", "null", ""])
def test_a_build_without_a_commit(machine: Machine, tmp_path: Path, commit: str) -> None:
    assert find_build(write_build(tmp_path / "flat", commit=commit)).commit == ""


def _renamed(folder: Path, old: str, new: str) -> Path:
    (folder / old).rename(folder / new)
    return folder


WRONG: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing there": (lambda folder: folder / "nowhere", "no such folder or .tgz; give a source tree"),
    "no Kafka": (
        lambda folder: write_jar(folder / "x/a-1.jar", {}).parent,
        r"no jar of a Kafka server .* libs/",
    ),
    "not built": (lambda folder: _touched(folder / "settings.gradle").parent, r"build it: \./gradlew jar"),
    "another Scala": (
        lambda folder: _renamed(
            write_build(folder / "b"), "kafka_2.13-4.9.0-SNAPSHOT.jar", "kafka_2.12-4.9.0-SNAPSHOT.jar"
        ),
        r"kafka_2\.12-.* is built for Scala 2\.12; .*-PscalaVersion=2\.13",
    ),
    "two versions of one jar": (
        lambda folder: write_jar(write_build(folder / "b") / "slf4j-api-2.0.0.jar", {}).parent,
        r"two versions of slf4j-api: slf4j-api-1\.7\.36\.jar and slf4j-api-2\.0\.0\.jar; remove",
    ),
    "two builds": (
        lambda folder: _renamed(
            write_build(folder / "b"), "kafka_2.13-4.9.0-SNAPSHOT.jar", "kafka_2.13-4.8.0.jar"
        ),
        r"jars of two builds: kafka_2\.13-4\.8\.0\.jar and kafka-clients-4\.9\.0-SNAPSHOT\.jar",
    ),
    "half a Kafka": (
        lambda folder: write_build(folder / "b", names=NAMES[:3]),
        "scala-library is missing, without which no broker starts",
    ),
    "a broken jar": (
        lambda folder: _spoilt(write_build(folder / "b") / "kafka-clients-4.9.0-SNAPSHOT.jar").parent,
        "it does not say its version .* is the jar whole",
    ),
    "half a download": (
        lambda folder: _spoilt(as_tgz(write_build(folder / "packed"))),
        "cannot be unpacked .* is the download whole",
    ),
}


def _touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def _spoilt(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:40])
    return path


@pytest.mark.parametrize(("place", "said"), list(WRONG.values()), ids=list(WRONG))
def test_what_is_no_build(machine: Machine, tmp_path: Path, place: Callable[[Path], Path], said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        find_build(place(tmp_path))
    assert "\n" not in str(refused.value)
    assert not list(machine.cache.glob("kafka-*")) and not machine.left_in_cache()


def test_a_build_is_copied_and_another_one_is_refused(machine: Machine, tmp_path: Path) -> None:
    folder = write_build(tmp_path / "mine")
    case = identify_build(KafkaBuild("", path=str(folder)))
    assert case.version == "4.9.0" and case.digest
    made = prepare_jars(case)
    assert {path.parent.parent.parent for path in made.classpath} == {machine.cache}
    assert made.full_version == "4.9.0-SNAPSHOT" and set(made.digests) == {
        one.name for one in folder.iterdir()
    }
    write_jar(folder / "kafka-server-4.9.0-SNAPSHOT.jar", {"A.class": "other code"})
    now = r"mine has another digest now \([0-9a-f]{12}; the case names"
    said = rf"{now} {case.digest}\): run the experiment again instead$"
    with pytest.raises(BadInput, match=said):
        prepare_jars(case)
    with pytest.raises(BadInput, match=said):
        identify_build(case)
    again = prepare_jars(identify_build(replace(case, digest=None)))
    assert again.home != made.home and made.classpath[0].is_file()


def test_a_version_that_the_jars_do_not_have_is_refused(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is Kafka 4\.9\.0, not 4\.8\.0"):
        identify_build(KafkaBuild("4.8.0", path=str(write_build(tmp_path / "mine"))))


@pytest.fixture
def patched(machine: Machine) -> Machine:
    """Return the fake machine; the server jar in its Maven repository has a class that a patch can replace."""
    write_jar(machine.repository / "kafka_2.13-9.9.9.jar", {"kafka/cluster/Partition.class": "released"})
    hashes = {path.name: sha256(path) for path in machine.repository.iterdir()}
    for name in ("a.jar", "log4j.jar"):
        hashes[name] = sha256(write_jar(machine.repository / name, {}))
    (releases.LOCKS / f"kafka-{VERSION}.lock").write_text(releases.Lock(VERSION, hashes).text())
    return machine


@pytest.mark.parametrize("packed", [False, True])
def test_a_patch_comes_before_the_jars(patched: Machine, tmp_path: Path, packed: bool) -> None:
    if packed:
        patch = write_jar(
            tmp_path / "fix.jar", {"kafka/cluster/Partition.class": "mended", "META-INF/MANIFEST.MF": ""}
        )
    else:
        patch = tmp_path / "classes"
        (patch / "kafka/cluster").mkdir(parents=True)
        (patch / "kafka/cluster/Partition.class").write_text("mended")
    case = identify_build(KafkaBuild(VERSION, patch=str(patch)))
    made = prepare_jars(case)
    assert made.classpath[1:] == kafka_jars(VERSION).classpath
    with zipfile.ZipFile(made.classpath[0]) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == {
            "kafka/cluster/Partition.class": b"mended"
        }
    assert list(made.digests) == ["patch.jar", *kafka_jars(VERSION).digests]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"classes/kafka/cluster/Partition.class": "x"},
            r"none of its 1 files replaces .*holds kafka/ or org/",
        ),
        ({}, "none of its 0 files"),
    ],
)
def test_a_patch_of_nothing(patched: Machine, tmp_path: Path, files: dict[str, str], said: str) -> None:
    patch = write_jar(tmp_path / "fix.jar", files)
    with pytest.raises(BadInput, match=said):
        prepare_jars(KafkaBuild(VERSION, patch=str(patch)))
    assert not list(patched.cache.glob("*-patch-*"))


def test_rules_leave_the_jars_as_they_are(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(jars, "check_rules", lambda text, _classpath: asked.append(text) or ())
    script = tmp_path / "any name.btm"
    script.write_text("RULE one")
    case = identify_build(KafkaBuild(VERSION, patch=str(script)))
    released, made = kafka_jars(VERSION), prepare_jars(case)
    assert (made.home, made.classpath) == (released.home, released.classpath)
    assert made.rules is not None and made.rules.read_text() == "RULE one"
    assert made.digests == {**released.digests, "rules.btm": sha256(script)}
    assert prepare_jars(case) == made and asked == ["RULE one"]  # checked once
    script.write_text("RULE two")
    with pytest.raises(BadInput, match="run the experiment again instead"):
        prepare_jars(case)
    assert made.rules.read_text() == "RULE one"


def test_rules_that_do_not_fit_are_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = RuleProblem("one", Misfit.CLASS, "no class a.B")
    monkeypatch.setattr(jars, "check_rules", lambda *_: (problem,))
    script = tmp_path / "rules.btm"
    script.write_text("RULE one")
    with pytest.raises(BadInput, match=rf"do not fit Kafka {VERSION}: one: class not found: no class a\.B"):
        prepare_jars(KafkaBuild(VERSION, patch=str(script)))
    assert not list(machine.cache.glob("kafka-*-patch-*"))


@pytest.mark.parametrize("name", ["nowhere", "text.jar", "damaged.jar", "nowhere.btm"])
def test_what_is_no_patch(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.jar").write_text("no zip")
    damaged = tmp_path / "damaged.jar"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("a.class", bytes(1000))
    data = damaged.read_bytes()
    damaged.write_bytes(data[:37] + b"\xff" * 4 + data[41:])
    with pytest.raises(
        BadInput, match=r"a patch is a jar, a folder of classes or|not a jar that can be read"
    ):
        read_patch(tmp_path / name)


@pytest.fixture
def offering(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return the fake machine, whose Maven repositories offer six versions; the release 4.9.1 has no lock."""
    there = frozenset({"3.8.1", "4.8.0", "4.9.0", "4.9.1", "4.10.0", "5.0.0-rc1"})
    monkeypatch.setattr(maven, "list_published_versions", lambda *_: there)
    return machine


def test_a_release_without_a_lock_comes_with_the_repositorys_checksums(offering: Machine) -> None:
    assert not is_cached("4.9.1")
    made = kafka_jars("4.9.1")
    assert " -C -U" in (offering.root / "calls").read_text()
    assert is_cached("4.9.1") and kafka_jars("4.9.1") == made
    assert offering.maven_calls() == 1
    made.classpath[0].write_bytes(b"fIrst")
    with pytest.raises(ProvisionFailed, match=r"wrong SHA-256 of a\.jar"):
        kafka_jars("4.9.1")


def test_the_newest_release_is_that_of_the_highest_number(offering: Machine) -> None:
    assert releases.find_newest_release() == "4.10.0"
    assert releases.list_offered_releases() == ["4.8.0", "4.9.0", "4.9.1", "4.10.0"]


@pytest.mark.parametrize(
    ("version", "nearest"),
    [("4.9.7", "4.9.0, 4.9.1"), ("4.11.0", "4.9.1, 4.10.0"), ("4.7.0", "4.8.0")],
)
def test_a_release_that_nobody_offers(offering: Machine, version: str, nearest: str) -> None:
    with pytest.raises(BadInput, match=rf"have no Kafka {version}; the nearest there: {nearest}$"):
        kafka_jars(version)
    assert offering.maven_calls() == 0 and not is_cached(version) and not offering.left_in_cache()


def test_nobody_can_be_asked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: str) -> frozenset[str]:
        raise ProvisionFailed("mvn could not fetch it: Unknown host repo")

    monkeypatch.setattr(maven, "list_published_versions", refused)
    with pytest.raises(
        BadInput, match=r"Kafka 4\.9\.1 is not in the cache and not known.*Unknown host.*4\.4"
    ):
        kafka_jars("4.9.1")
    with pytest.raises(BadInput, match=r"the newest release of Kafka is not known.*Unknown host.*name one"):
        releases.find_newest_release()


def test_a_wrong_checksum_names_the_mirror(offering: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ERROR", "Checksum validation failed, expected 1 but is 2")
    with pytest.raises(ProvisionFailed, match=r"Checksum validation failed.*nothing of it is used: a mirror"):
        kafka_jars("4.9.1")
    assert not is_cached("4.9.1") and not offering.left_in_cache()


def test_the_project_for_a_list_asks_for_no_jar() -> None:
    assert "<version>RELEASE</version><type>pom</type>" in "".join(
        line.strip() for line in maven.pom([("g", "a", "RELEASE")], "pom").splitlines()
    )
