"""Tests of class-data archives: an archive that Java cannot use is made again or reported."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.jvm import ROLES, archive_folder, archive_in_use, class_data_archives
from ackproof.provision.progress import ProvisionFailed

from .conftest import VERSION, Machine, java_script, script

# a Java that takes an archive only if it says "good"
CHOOSY = f"""#!{sys.executable}
import pathlib, sys
for argument in sys.argv:
    if argument.startswith("-XX:SharedArchiveFile="):
        if pathlib.Path(argument.split("=", 1)[1]).read_text() != "good":
            sys.exit("An error has occurred while processing the shared archive file.")
print('openjdk version "17.0.99"\\nmixed mode, sharing', file=sys.stderr)
"""


class Maker:
    """Fake maker of archives, without a broker: call number n writes `contents[n]` as the archive of each role."""

    def __init__(self, *contents: str) -> None:
        self.contents = list(contents)
        self.made = 0

    def __call__(self, folder: Path) -> None:
        for role in ROLES:
            (folder / f"{role}.jsa").write_text(self.contents[self.made])
        self.made += 1


def test_made_once_for_both_roles(machine: Machine) -> None:
    script(machine.bin / "java", CHOOSY)
    maker = Maker("good")
    jars, java = kafka_jars(VERSION), find_java()
    made = class_data_archives(jars, java, maker)
    assert {role: path.name for role, path in made.items()} == {role: f"{role}.jsa" for role in ROLES}
    assert class_data_archives(jars, java, maker) == made
    assert maker.made == 1
    assert all(path.is_relative_to(jars.home) for path in made.values())


def test_one_that_does_not_fit_is_made_again(machine: Machine) -> None:
    script(machine.bin / "java", CHOOSY)
    maker = Maker("bad", "good")
    made = class_data_archives(kafka_jars(VERSION), find_java(), maker, machine.listen)
    assert [path.read_text() for path in made.values()] == ["good", "good"]
    assert maker.made == 2
    assert any("cannot be used (An error has occurred" in event.message for event in machine.events)
    assert machine.left_in_cache() == []


def test_one_that_never_fits_is_told(machine: Machine) -> None:
    script(machine.bin / "java", CHOOSY)
    with pytest.raises(ProvisionFailed, match="does not use the archive it made: An error has occurred"):
        class_data_archives(kafka_jars(VERSION), find_java(), Maker("bad", "bad"))


def test_other_files_or_another_java_need_another_archive(machine: Machine) -> None:
    jars, java = kafka_jars(VERSION), find_java()
    before = archive_folder(jars, java)
    assert archive_folder(jars, java) == before
    os.utime(jars.classpath[0], (1, 1))  # Java compares the times, too
    assert archive_folder(jars, java) != before
    java_script(machine.bin / "java", "17.0.100")
    assert archive_folder(jars, find_java()).name.split("-")[:3] != before.name.split("-")[:3]


def test_in_use_is_what_the_process_has_mapped(tmp_path: Path) -> None:
    path, link = tmp_path / "broker.jsa", tmp_path / "link.jsa"
    path.write_bytes(b"x" * 4096)
    link.symlink_to(path)
    assert not archive_in_use(os.getpid(), path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert archive_in_use(os.getpid(), path)
        assert archive_in_use(os.getpid(), link)
        assert not archive_in_use(os.getpid(), tmp_path / "roker.jsa")
    assert not archive_in_use(2**22 + 1, path), "a process that is gone"
