"""Kafka's server jars in the cache: of a release, of a user's own build, or of a release with a patch.

Jars of a known release are compared with its lock, which has their SHA-256. For other jars a lock is written into the
cache when they are copied from a build or fetched from Maven. Maven then checks the repository's checksums.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from ackproof.base.environment import cache_root
from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import KafkaBuild, line_of, not_a_version
from ackproof.provision import maven
from ackproof.provision.builds import (
    RULES,
    FoundBuild,
    artifact_of,
    find_build,
    read_patch,
    require_replacing,
)
from ackproof.provision.byteman import check_rules
from ackproof.provision.cache import build_once, sha256
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore
from ackproof.provision.releases import (
    Lock,
    compute_digest,
    direct_dependencies,
    lock,
    read_lock,
    require_offered,
)

_OWN_LOCK: Final = "jars.lock"
_PATCH: Final = "patch.jar"
_PROBLEMS: Final = 3
"""Maximum number of problems with Byteman rules that a message quotes."""


@dataclass(frozen=True)
class KafkaJars:
    """The verified server jars of one Kafka build. `version`: number of the release, without a suffix.

    `home`: its cache folder, which also holds class-data archives and formatted checkpoints. A release with Byteman
    rules has the cache folder of the plain release.
    """

    version: str
    home: Path
    classpath: tuple[Path, ...]
    """Absolute paths, sorted; a patch's jar comes first. A class-data archive is valid for exactly this order."""
    digests: Mapping[str, str]
    """SHA-256 of each jar, and of the script of Byteman rules, by file name."""
    full_version: str = ""
    """The version in the jars of a build, with a suffix such as -SNAPSHOT; '' for a release, also with a patch."""
    commit: str = ""
    """Git commit of a build; '' for a release, or if the jars do not say."""
    rules: Path | None = None
    """Script of Byteman rules that every node loads; None without rules."""

    @property
    def directory(self) -> Path:
        """Folder that holds the jars, except the jar of a patch."""
        return self.classpath[-1].parent

    @property
    def classpath_argument(self) -> str:
        return ":".join(map(str, self.classpath))

    @cached_property
    def digest(self) -> str:
        """Digest of `digests`: equal if the files have the same names and contents."""
        return compute_digest(self.digests)


def prepare_jars(build: KafkaBuild, progress: ProgressSink = ignore) -> KafkaJars:
    """Return the jars of a build that is no image: a release, a path or a patch. Fetches or copies what is not cached.

    Raises `BadInput` for an unknown release, a path without jars, a patch that does not fit, or files whose digest is
    not `build.digest`. Otherwise it raises what `kafka_jars` raises.
    """
    if build.patch is not None:
        return _patch_release(build, Path(build.patch), progress)
    if build.path is not None:
        return copy_build(find_build(Path(build.path), progress), build, progress)
    return kafka_jars(build.version, progress)


def kafka_jars(version: str, progress: ProgressSink = ignore) -> KafkaJars:
    """Return the jars of a release: from the cache, else fetched with Maven (7 s and 45 MB the first time).

    The SHA-256 of every jar, also if cached, is compared with the release's list (`Lock`): 0.03 s, once per process
    while no file changes. Raises `BadInput` for a release that has no list here and that no repository is known to
    offer. Raises `MissingTool` without mvn or Java, `ProvisionFailed` for a failed download or wrong SHA-256,
    `WaitTimeout` if it takes too long.
    """
    locked = lock(version)
    if locked is None and (why := not_a_version(version)) is not None:
        raise BadInput(why)
    home = _home(version, locked)

    def fetch(folder: Path) -> None:
        if locked is None:
            require_offered(version)
            _download(version, folder / "jars", (), progress, strict=True)
            _write_own_lock(folder, version)
            return
        _download(version, folder / "jars", locked.jars, progress)
        progress(Progress(f"Kafka {version}: comparing SHA-256", 0, len(locked.jars)))
        verify(locked, folder / "jars")
        for jar in (folder / "jars").iterdir():
            jar.rename(folder / jar.name)
        (folder / "jars").rmdir()

    build_once(home if locked is None else home / "jars", fetch, progress)
    return _verify_jars(locked or read_lock(version, home / _OWN_LOCK), home / "jars", progress)


def identify_build(build: KafkaBuild, image_jars: Path | None = None) -> KafkaBuild:
    """Return the build with the version and digest of its files filled in; of a patch, only the digest. A published
    release is returned unchanged, and so is an image without `image_jars`.

    `image_jars`: folder of an image's jars. Raises `BadInput` if there is no complete build or no patch, or if its
    version or digest is not the one that `build` names. Raises OSError if a file cannot be read, `WaitTimeout` if
    another process unpacks its .tgz for too long.
    """
    if build.patch is not None:
        files = read_patch(Path(build.patch))
        return replace(build, digest=_require_patch(build, files))
    place = image_jars or (Path(build.path) if build.path is not None else None)
    if place is None:
        return build
    found = find_build(place)
    if build.version and build.version != found.version:
        raise BadInput(f"{build.label} is Kafka {found.version}, not {build.version}")
    digest = compute_digest(found.digests())
    _require_same(build, digest)
    return replace(build, version=found.version, digest=digest)


def is_cached(version: str) -> bool:
    """Return True if the jars of this release are in the cache.

    Then `kafka_jars` needs neither Maven nor a network.
    """
    return (_home(version, lock(version)) / "jars").exists()


def cached_classpath(build: KafkaBuild) -> tuple[Path, ...]:
    """Return the jars of a release, or of a release with Byteman rules, from the cache, sorted and without
    verification. Return () if the cache lacks them, and for other builds, which have classes of their own."""
    plain = build.is_release or build.has_rules
    return tuple(sorted((_home(build.version, lock(build.version)) / "jars").glob("*.jar"))) if plain else ()


def copy_build(found: FoundBuild, build: KafkaBuild, progress: ProgressSink = ignore) -> KafkaJars:
    """Copy the jars of a build (`found`) into the cache, because a later build at that path must not change a running
    node. Return the copies.

    A build without a logger gets that of the newest known release in its line. `build`: the build that the case names.
    Raises `BadInput` if the jars do not have the digest of `build` or change meanwhile, and as `kafka_jars` does.
    """
    own = found.digests()
    _require_same(build, compute_digest(own))
    logger: tuple[Path, ...] = ()
    if not found.logs:  # as in Maven's server jars: add the logger of the nearest release
        there = {artifact_of(jar) for jar in found.jars}
        known = kafka_jars(line_of(found.version).releases[-1], progress).classpath
        named = ((jar, artifact_of(jar)) for jar in known)
        logger = tuple(jar for jar, name in named if "log4j" in name and name not in there)
    digests = {**own, **{jar.name: sha256(jar) for jar in logger}}
    home = cache_root() / f"kafka-{found.full_version}-build-{compute_digest(digests)}"

    def copy(folder: Path) -> None:
        progress(Progress(f"{build.label}: copying {len(digests)} jars into the cache"))
        (folder / "jars").mkdir()
        for jar in (*found.jars, *logger):
            # With its time: a class-data archive is valid for that.
            shutil.copy2(jar, folder / "jars" / jar.name)
        if _write_own_lock(folder, found.version).jars != digests:
            raise BadInput(f"{build.label} was built again while its jars were copied: run this once more")

    build_once(home, copy, progress)
    jars = _verify_jars(read_lock(found.version, home / _OWN_LOCK), home / "jars", progress)
    return KafkaJars(
        jars.version, home, jars.classpath, digests, full_version=found.full_version, commit=found.commit
    )


def _require_same(build: KafkaBuild, digest: str) -> None:
    if build.digest and build.digest != digest:
        raise BadInput(
            f"{build.label} has another digest now ({digest}; the case names {build.digest}): run the "
            "experiment again instead"
        )


def _require_patch(build: KafkaBuild, files: Mapping[str, bytes]) -> str:
    """Return the digest of a patch's files. Raises `BadInput` if it is not that of the build."""
    digest = compute_digest({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    _require_same(build, digest)
    return digest


def _patch_release(build: KafkaBuild, patch: Path, progress: ProgressSink) -> KafkaJars:
    """Return the jars of the release that a build patches. A jar with the patch's files comes first in the class path;
    a patch of Byteman rules adds no jar. Raises `BadInput` for a patch that does not fit, and as `kafka_jars` does."""
    version = build.version
    base = kafka_jars(version, progress)
    files = read_patch(patch)
    if not build.has_rules:
        require_replacing(patch, files, base.classpath)
    digest = _require_patch(build, files)
    home = cache_root() / f"kafka-{version}-{base.digest}-patch-{digest}"
    if build.has_rules:
        return _add_rules(base, patch, files[RULES], home, progress)

    def write(folder: Path) -> None:
        progress(Progress(f"Kafka {version}: a jar of the {len(files)} files of {patch.name}"))
        with zipfile.ZipFile(folder / _PATCH, "w") as jar:
            for name, data in files.items():
                jar.writestr(zipfile.ZipInfo(name), data)

    built = build_once(home, write, progress) / _PATCH
    digests = {built.name: sha256(built), **base.digests}
    return KafkaJars(version, home, (built, *base.classpath), digests)


def _add_rules(base: KafkaJars, patch: Path, script: bytes, home: Path, progress: ProgressSink) -> KafkaJars:
    """Copy the Byteman rules `script` of a user's patch into the cache folder `home`. Return the jars of the release
    `base` with these rules; class path and class-data archive stay those of the release.

    Raises `BadInput` with Byteman's words for rules that do not fit the release, and as `check_rules` does.
    """

    def write(folder: Path) -> None:
        progress(Progress(f"Kafka {base.version}: checking the rules of {patch.name} against its classes"))
        if problems := check_rules(script.decode("utf-8", "replace"), base.classpath):
            said = "; ".join(map(str, problems[:_PROBLEMS]))
            raise BadInput(f"{patch}: {len(problems)} of its rules do not fit Kafka {base.version}: {said}")
        (folder / RULES).write_bytes(script)

    rules = build_once(home, write, progress) / RULES
    return replace(base, rules=rules, digests={**base.digests, RULES: sha256(rules)})


def _write_own_lock(folder: Path, version: str) -> Lock:
    made = Lock(version, {jar.name: sha256(jar) for jar in (folder / "jars").iterdir()})
    (folder / _OWN_LOCK).write_text(made.text(), encoding="utf-8")
    return made


def _home(version: str, locked: Lock | None) -> Path:
    """Return the cache folder of a release. Its name has the lock's digest, if there is a lock."""
    return cache_root() / (f"kafka-{version}" if locked is None else f"kafka-{version}-{locked.digest}")


def _download(
    version: str, jars: Path, expected: Collection[str], progress: ProgressSink, *, strict: bool = False
) -> None:
    work = jars.parent / "work"
    work.mkdir()
    name, artifacts = f"Kafka {version}", direct_dependencies(version)
    try:
        maven.fetch(name, artifacts, jars, work, expected=expected, progress=progress, strict=strict)
    except ProvisionFailed as error:
        if "hecksum" not in str(error):
            raise
        raise ProvisionFailed(
            f"{error}; nothing of it is used: a mirror or proxy holds another file than the repository says; try again "
            "without it (~/.m2/settings.xml)"
        ) from error
    shutil.rmtree(work)


def verify(locked: Lock, directory: Path) -> None:
    """Compare all files of a folder with the lock. Raises `ProvisionFailed` at the first file that is missing, is not
    in the lock, or has a wrong SHA-256."""
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    where = f"Kafka {locked.version} in {directory}"
    if missing := sorted(locked.jars.keys() - found):
        raise ProvisionFailed(f"{where}: {missing[0]} is missing ({len(missing)} jars in all)")
    if extra := sorted(found - locked.jars.keys()):
        raise ProvisionFailed(f"{where}: {extra[0]} is not in the lock ({len(extra)} files in all)")
    for name, expected in locked.jars.items():
        if (got := sha256(directory / name)) != expected:
            raise ProvisionFailed(
                f"{where}: wrong SHA-256 of {name}: expected {expected}, got {got}; nothing of it is used"
            )


_verified: set[tuple[str, tuple[tuple[str, int, int], ...]]] = set()
"""Folders of jars that were verified in this process: lock digest, and name, size and time of change (ns) of every
file."""


def _verify_jars(locked: Lock, directory: Path, progress: ProgressSink) -> KafkaJars:
    stats = ((path, path.stat()) for path in sorted(directory.iterdir()))
    look = (locked.digest, tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats))
    if look not in _verified:
        progress(Progress(f"Kafka {locked.version}: comparing SHA-256", 0, len(locked.jars)))
        try:
            verify(locked, directory)
        except ProvisionFailed as error:
            raise ProvisionFailed(f"{error}. To fetch it again: rm -r {directory}") from error
        _verified.add(look)
    classpath = tuple(directory / name for name in sorted(locked.jars))
    return KafkaJars(locked.version, directory.parent, classpath, locked.jars)
