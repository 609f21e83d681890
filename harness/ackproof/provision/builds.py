"""The jars of a user's own build of Kafka: find them below a path, and check that they are one complete Kafka.

A path is a source tree after `./gradlew jar` (or `releaseTarGz`), an unpacked distribution, a folder of jars, or a
.tgz. The jars of a source tree are those that its `bin/kafka-run-class.sh` puts into the class path.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ackproof.base.environment import cache_root
from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import RULES_SUFFIX
from ackproof.provision.cache import build_once, sha256
from ackproof.provision.progress import Progress, ProgressSink, ignore

RULES: Final = f"rules{RULES_SUFFIX}"
"""File name of a patch of Byteman rules, in the cache and among the digests of the jars."""
SCALA: Final = "2.13"
_SERVER: Final = re.compile(r"kafka_(?P<scala>[0-9.]+)-[0-9].*\.jar\Z")
_JAR: Final = re.compile(r"(?P<artifact>.+?)-(?P<version>[0-9][A-Za-z0-9.+_-]*)\.jar\Z")
_NOT_RUN: Final = re.compile(r"-(test|test-sources|test-fixtures|src|sources|scaladoc|javadoc)\.jar\Z")
"""Names of jars that are not put on the class path: those that kafka-run-class.sh skips (`should_include_file`), and
source jars."""
_UNFINISHED: Final = re.compile(r"(SNAPSHOT|rc|alpha|beta|M[0-9])", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_COMMIT: Final = re.compile(r"[0-9a-f]+\Z")
"""Commit in the jars. Kafka's build writes `unknown` or `null` if it finds none in `.git` (`determineCommitId`)."""
_CLIENTS: Final = "kafka-clients"
_ABOUT: Final = "kafka/kafka-version.properties"
_LEAST: Final = (_CLIENTS, "scala-library", "slf4j-api")
"""Artifacts that every broker needs to start."""
_LOGGERS: Final = (
    "log4j-slf4j-impl",
    "log4j-slf4j2-impl",
    "slf4j-reload4j",
    "slf4j-log4j12",
    "logback-classic",
)


@dataclass(frozen=True)
class FoundBuild:
    """Jars of a Kafka build. `full_version`: version in the jars, with suffix; `commit`: Git commit, '' if unknown."""

    jars: tuple[Path, ...]
    full_version: str
    commit: str

    @property
    def version(self) -> str:
        """Number of the release, without a suffix such as -SNAPSHOT. Raises `BadInput` if the jars' version does not
        begin with the number of a release."""
        match = _NUMBER.match(self.full_version)
        if match is None:
            raise BadInput(f"{self.jars[0].parent}: '{self.full_version}' is no version of Kafka")
        return match[0]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each jar, by file name (0.3 s)."""
        return {jar.name: sha256(jar) for jar in self.jars}

    @property
    def logs(self) -> bool:
        """True if the jars include a logging backend for slf4j. The server jars from Maven include none."""
        return any(artifact_of(jar) in _LOGGERS for jar in self.jars)


def find_build(path: Path, progress: ProgressSink = ignore) -> FoundBuild:
    """Return the Kafka build at a path: a source tree, a distribution, a folder of jars, or a .tgz.

    A .tgz is unpacked into the cache, once for each name, size and time of change. Raises `BadInput` with cause and
    remedy if there is no complete build, `WaitTimeout` if another process unpacks it for too long.
    """
    if path.is_file() and path.name.endswith((".tgz", ".tar.gz")):
        stat = path.stat()
        target = cache_root() / f"kafka-tgz-{path.name[:60]}-{stat.st_size}-{stat.st_mtime_ns}"
        progress(Progress(f"unpacking {path.name}"))
        build_once(target, lambda folder: unpack_jars(path, folder), progress)
        return _checked(path, target.glob("*.jar"))
    if not path.is_dir():
        raise BadInput(f"{path}: no such folder or .tgz", "give a source tree, a distribution, or its .tgz")
    if (path / "core" / "build.gradle").exists() or (path / "settings.gradle").exists():
        folders = (f"*/build/dependant-libs-{SCALA}*", "*/build/libs", "*/*/build/libs")
        found = (jar for folder in folders for jar in path.glob(f"{folder}/*.jar"))
        return _checked(path, found, "build it: ./gradlew jar")
    libs = path / "libs" if (path / "libs").is_dir() else path
    return _checked(path, libs.glob("*.jar"))


def artifact_of(jar: Path) -> str:
    """Return the artifact's name: `kafka-clients` for kafka-clients-4.3.1.jar."""
    match = _JAR.match(jar.name)
    return match["artifact"] if match else jar.stem


def _checked(
    path: Path, found: Iterable[Path], remedy: str = "give the folder that holds libs/"
) -> FoundBuild:
    """Return the build that these jars make up, sorted by file name, without jars of tests, sources, documentation and
    `connect-file`. Of two files with one name the first is used.

    Raises `BadInput` if they are no complete Kafka build for Scala 2.13, or are from two builds. `path`: where the jars
    come from, for the message. `remedy`: hint for a build without a server or a necessary jar.
    """
    by_name: dict[str, Path] = {}
    for jar in found:
        if not _NOT_RUN.search(jar.name) and not jar.name.startswith("connect-file"):
            by_name.setdefault(jar.name, jar.absolute())
    jars = tuple(by_name[name] for name in sorted(by_name))
    servers = [match for jar in jars if (match := _SERVER.match(jar.name))]
    if not servers:
        raise BadInput(f"{path}: no jar of a Kafka server (kafka_{SCALA}-….jar) is there", remedy)
    if other := next((one for one in servers if one["scala"] != SCALA), None):
        raise BadInput(
            f"{path}: {other.string} is built for Scala {other['scala']}",
            f"ackproof runs builds for {SCALA}: ./gradlew -PscalaVersion={SCALA} jar",
        )
    _require_single(path, jars)
    there = {artifact_of(jar): jar for jar in jars}
    if missing := [name for name in _LEAST if name not in there]:
        raise BadInput(f"{path}: {missing[0]} is missing, without which no broker starts", remedy)
    clients = there[_CLIENTS]
    try:
        with zipfile.ZipFile(clients) as opened:
            lines = opened.read(_ABOUT).decode("utf-8", "replace").splitlines()
    except (OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{clients}: it does not say its version ({error})", "is the jar whole?") from error
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    version = said.get("version", "").strip()
    commit = said.get("commitId", "").strip()
    server = str(_JAR.match(servers[0].string)["version"])  # type: ignore[index]
    if _NUMBER.findall(version)[:1] != _NUMBER.findall(server)[:1]:
        raise BadInput(
            f"{path}: jars of two builds: {servers[0].string} and {clients.name}, which says {version}",
            "build all of it again: ./gradlew clean jar",
        )
    return FoundBuild(jars, version, commit if _COMMIT.match(commit) else "")


def _require_single(path: Path, jars: Sequence[Path]) -> None:
    """Raise `BadInput` if the jars contain two versions of one artifact."""
    seen: dict[str, tuple[str, str]] = {}
    for jar in jars:
        match = _JAR.match(jar.name)
        if match is None:
            continue
        # `4.1.130-linux-x86_64` is 4.1.130; what marks an unfinished version (-SNAPSHOT, -rc1) is part of it.
        number, _, rest = match["version"].partition("-")
        version = match["version"] if _UNFINISHED.match(rest) else number
        before, name = seen.setdefault(match["artifact"], (version, jar.name))
        if before != version:
            raise BadInput(
                f"{path}: two versions of {match['artifact']}: {name} and {jar.name}",
                "remove the one that does not belong there (./gradlew clean)",
            )


def unpack_jars(archive: Path, folder: Path) -> None:
    """Write the jars of every `libs/` folder in a tar archive (compressed or not) into `folder`, which exists; nothing
    if there are none. Raises `BadInput` if the archive cannot be unpacked.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if name.suffix == ".jar" and name.parent.name == "libs" and (file := tar.extractfile(member)):
                    with file, (folder / name.name).open("wb") as jar:
                        shutil.copyfileobj(file, jar)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadInput(f"{archive}: it cannot be unpacked ({error})", "is the download whole?") from error


def read_patch(patch: Path) -> dict[str, bytes]:
    """Return the files of a patch without those in META-INF: content by path within the jar or folder. A script of
    Byteman rules gives a single entry, with the key `RULES`.

    Raises `BadInput` if the patch is no jar, folder or script, or is a jar that cannot be read. Raises OSError for
    another file that cannot be read.
    """
    if patch.suffix == RULES_SUFFIX and patch.is_file():
        files = {RULES: patch.read_bytes()}
    elif patch.is_dir():
        files = {
            file.relative_to(patch).as_posix(): file.read_bytes()
            for file in sorted(patch.rglob("*"))
            if file.is_file()
        }
    elif patch.suffix == ".jar" and patch.is_file():
        try:
            with zipfile.ZipFile(patch) as jar:
                files = {name: jar.read(name) for name in sorted(jar.namelist()) if not name.endswith("/")}
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise BadInput(f"{patch}: not a jar that can be read ({error})") from error
    else:
        raise BadInput(f"{patch}: a patch is a jar, a folder of classes or a .btm script, and there is none")
    return {name: data for name, data in files.items() if not name.startswith("META-INF/")}


def require_replacing(patch: Path, files: Mapping[str, bytes], jars: Sequence[Path]) -> None:
    """Raise `BadInput` unless at least one file of the patch replaces a file in these jars. `files`: result of
    `read_patch`. Raises OSError, `zipfile.BadZipFile` for a jar that cannot be read."""
    for jar in jars:
        with zipfile.ZipFile(jar) as opened:
            if not files.keys().isdisjoint(opened.namelist()):
                return
    first = next(iter(files), "nothing")
    raise BadInput(
        f"{patch}: none of its {len(files)} files replaces one of Kafka's (the first is {first})",
        "give the folder that holds kafka/ or org/",
    )
