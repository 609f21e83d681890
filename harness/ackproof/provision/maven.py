"""Fetches jars through the ordinary Maven client, with the user's settings, mirrors and local repository."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from ackproof.base.errors import MissingTool
from ackproof.provision.cache import run_program
from ackproof.provision.java import find_java
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore

INSTALL = "apt-get install maven"

Artifact: TypeAlias = tuple[str, str, str]
"""Maven group, artifact and version."""

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_TIMEOUT_S = 840.0
_FETCHED = re.compile(r"^(?:\[INFO\] )?Downloaded from \S+: \S+/(?P<jar>[^/\s]+\.jar) ", re.MULTILINE)
_COPIED = re.compile(r"^\[INFO\] Copying (?P<jar>\S+\.jar) to ", re.MULTILINE)
_RESOLVED = re.compile(r"^ *[^: ]+:[^: ]+:pom:[^:]+:compile:(?P<path>/.*\.pom)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOT_TELLING = re.compile(
    r"^(|To see the full stack trace.*|Re-run Maven.*|For more information.*|\[Help.*)$"
)
_POM = """\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ackproof</groupId>
  <artifactId>fetched</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<type>{}</type></dependency>"
)


def find_maven() -> Path:
    """Return the absolute path of `mvn`, from the PATH. Raises `MissingTool` if it is not there."""
    found = shutil.which("mvn")
    if found is None:
        raise MissingTool("mvn", "Kafka's jars are fetched with it", INSTALL)
    return Path(found).absolute()


def pom(artifacts: Sequence[Artifact], kind: str = "jar") -> str:
    """Return the text of a POM whose dependencies are exactly these artifacts. `kind`: their Maven type (jar, pom)."""
    return _POM.format(dependencies="\n".join(_DEPENDENCY.format(*each, kind) for each in artifacts))


@cache
def list_published_versions(group: str, artifact: str) -> frozenset[str]:
    """Return every version of an artifact that the repositories of Maven's settings offer now (2 s, once per process).

    Raises `MissingTool` without mvn or Java, `WaitTimeout` if it takes too long, `ProvisionFailed` if Maven
    fails or no repository answers.
    """
    with tempfile.TemporaryDirectory(prefix="ackproof-maven-") as folder:
        work = Path(folder)
        (work / "pom.xml").write_text(pom([(group, artifact, "RELEASE")], "pom"), encoding="utf-8")
        # Maven keeps a repository's list with the artifacts; -U: not one that it asked for earlier today.
        goal = [
            f"{_PLUGIN}:resolve",
            "-U",
            "-DoutputAbsoluteArtifactFilename=true",
            "-DexcludeTransitive=true",
        ]
        what = f"the versions of {artifact}"
        _run([*goal, f"-DoutputFile={work / 'resolved'}"], work, what, (), ignore)
        found = _RESOLVED.search((work / "resolved").read_text(encoding="utf-8"))
        lists = Path(found["path"]).parent.parent.glob("maven-metadata-*.xml") if found else ()
        versions = {
            version.text or "" for file in lists for version in ElementTree.parse(file).iter("version")
        }
    if not versions:
        raise ProvisionFailed(f"Maven keeps no list of {what}: look at its settings and mirrors")
    return frozenset(versions)


def fetch(
    what: str,
    artifacts: Sequence[Artifact],
    jars: Path,
    work: Path,
    *,
    expected: Collection[str],
    progress: ProgressSink,
    strict: bool = False,
) -> None:
    """Put the jars of these artifacts and of all their runtime dependencies into the new folder `jars`.

    `what`: their name in messages. `work`: an empty folder for the Maven project and its output. `expected`: file names
    that `progress` counts; empty if they are not known.

    `strict`: fail on a wrong checksum, of which Maven otherwise only warns, and look again for files that were missing
    earlier today. Raises `MissingTool` without mvn or Java, `ProvisionFailed` with Maven's message, `WaitTimeout` if it
    takes too long.
    """
    (work / "pom.xml").write_text(pom(artifacts), encoding="utf-8")
    goal = [f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    _run([*goal, *(("-C", "-U") if strict else ())], work, what, expected, progress)


def _run(
    arguments: Sequence[str], work: Path, what: str, expected: Collection[str], progress: ProgressSink
) -> None:
    """Run Maven with these arguments in `work`, which holds the POM. `what`: name of the wanted jars in messages.
    `expected`: their file names, for `progress`. Raises as `fetch` does."""
    maven = find_maven()
    find_java()  # Maven needs one too, and would say so in more words
    progress(Progress(f"{what}: asking Maven", 0, len(expected)))
    told = 0

    def watch(output: str) -> None:
        nonlocal told
        # Count only the expected files: Maven also fetches the jars of its own plugins.
        text = _COLOUR.sub("", output)
        done = len({*_FETCHED.findall(text), *_COPIED.findall(text)}.intersection(expected))
        if done > told:
            told = done
            progress(Progress(f"{what}: fetching its jars", done, len(expected)))

    status, output = run_program(
        [str(maven), "-B", *arguments],
        work,
        role="mvn",
        what=f"mvn to fetch {what}",
        timeout_s=_TIMEOUT_S,
        watch=watch,
    )
    if status != 0:
        complaint = _complaint(_COLOUR.sub("", output).splitlines())
        raise ProvisionFailed(f"mvn could not fetch {what} (exit {status}): {complaint}")


def _complaint(said: Sequence[str]) -> str:
    """Return the first three error messages of Maven that name a cause, joined into one line. Without any, return the
    last three lines of its output; `it said nothing` without output."""
    errors = [
        line.removeprefix("[ERROR]").removesuffix("-> [Help 1]").strip()
        for line in said
        if line.startswith("[ERROR]")
    ]
    telling = [line for line in errors if not _NOT_TELLING.match(line)]
    lines = telling or [line for line in said if line.strip()][-3:]
    return " ".join(lines[:3]) or "it said nothing"
