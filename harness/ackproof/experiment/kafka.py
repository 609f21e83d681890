"""The Kafka that an experiment names: known releases, builds, metadata modes, broker files.

`releases.json` has a row for each release line: its releases, and the feature levels that its brokers support
(ApiVersions). `python tools/new_release.py VERSION` writes the row and the lock file of the jars. Any other release
from the oldest known line on runs too, under the rules of the newest known line that is not newer.

A file writes `"4.4.0"`, `newest`, `{path: ../kafka}`, `{version: "4.3.1", patch: fix.jar}` (or `rules.btm`) or `{image:
my/kafka:tag}`. `ackproof.plan.builds` fills in the rest: the version of a build, the newest release, absolute paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, PlainSerializer, WithJsonSchema

from ackproof.base.advice import expected
from ackproof.base.units import wrong
from ackproof.experiment.base import Config, Spec, Text

ELR: Final = "eligible.leader.replicas.version"
"""Feature of eligible leader replicas (KIP-966). At level 1, replicas that leave an ISR when it falls below
min.insync.replicas stay eligible as leaders."""
KRAFT: Final = "kraft.version"
METADATA: Final = "metadata.version"
ELR_NEEDS: Final = 23
"""Lowest metadata.version with which a cluster can be formatted with eligible leader replicas (4.0-IV1)."""
ROWS: Final = Path(__file__).with_name("releases.json")


class ReleaseLine(NamedTuple):
    """A line of Kafka releases with the same major and minor version, such as 4.3: `number` is (4, 3)."""

    number: tuple[int, int]
    releases: tuple[str, ...]
    """Releases of the line, oldest first."""
    features: Mapping[str, tuple[int, int]]
    """Feature name → lowest and highest level that the line's brokers support."""

    @property
    def zookeeper(self) -> bool:
        """Return True if the line has the ZooKeeper mode; 3.9 was the last such line."""
        return self.number < (4, 0)

    def __str__(self) -> str:
        return ".".join(map(str, self.number))


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, to compare versions: `4.3.1` → (4, 3, 1). Raises ValueError for a part that is no
    number.
    """
    return tuple(int(part) for part in version.split("."))


def _read_lines() -> tuple[ReleaseLine, ...]:
    lines = [
        ReleaseLine(
            (numbers(name)[0], numbers(name)[1]),
            tuple(sorted(row["releases"], key=numbers)),
            {feature: (low, high) for feature, (low, high) in row["features"].items()},
        )
        for name, row in json.loads(ROWS.read_text(encoding="utf-8")).items()
    ]
    return tuple(sorted(lines))


LINES: Final = _read_lines()
"""Known release lines, oldest first."""

RELEASES: Final = tuple(release for line in LINES for release in line.releases)
"""Every known release, oldest first."""
NEWEST: Final = tuple(line.releases[-1] for line in LINES)
"""The newest release of each line."""
DEFAULT: Final = RELEASES[-1]
"""Release of an experiment that names none."""
LAST_WITH_ZOOKEEPER: Final = next(line.releases[-1] for line in reversed(LINES) if line.zookeeper)
KNOWN_FEATURES: Final = tuple(dict.fromkeys(name for line in LINES for name in line.features))
"""Names of the features that any known release has."""


def too_old(version: str) -> str | None:
    """Return why this version is too old for any experiment; None if it is not older than the oldest known line. Raises
    ValueError for a part that is no number."""
    if numbers(version)[:2] >= LINES[0].number:
        return None
    return f"Kafka {version} is not supported: {LINES[0]} is the oldest line that is"


def line_of(version: str) -> ReleaseLine:
    """Return the release line of this version, such as `4.3.1`. For an unknown line: the newest known line before it,
    else the oldest. Raises ValueError for a part that is no number.
    """
    return next((line for line in reversed(LINES) if line.number <= numbers(version)[:2]), LINES[0])


def features_of(version: str) -> Mapping[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature, by name, in this version's release line (`line_of`)."""
    return line_of(version).features


def first_with(feature: str) -> str:
    """Return the first release line that has a feature, such as `4.0`. Raises StopIteration if none has it."""
    return str(next(line for line in LINES if feature in line.features))


@dataclass(frozen=True)
class MetadataMode:
    """Properties of a metadata mode (`cluster.mode`), KRaft or ZooKeeper: which nodes it has, and which settings set
    its time-outs."""

    server: str
    """Word for a node that keeps the metadata and holds no partitions: `controller` or `zookeeper`."""
    broker_controls: bool
    """True if one of the brokers is the controller. The servers elect it, and it alone carries out changes of
    metadata."""
    rules: str
    """Suffix of a release in the name of its protocol rules: `-zk`, as in `3.9.2-zk`; '' in KRaft mode."""
    registers_once: bool
    """True if a broker registers once in the life of its process; False if it registers with each of its sessions."""
    session: str
    """Name of the setting for the time after which a silent broker is fenced (KRaft) or loses its
    registration."""
    timing: Mapping[str, str]
    """Time-outs of nodes that `timing: chaos` and `script` set in this mode only (`experiment.timing`)."""


_KRAFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A dead broker is noticed within this session; a paused one stays registered for as long.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "300",
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.election.backoff.max.ms": "300",
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.request.timeout.ms": "1000",
        "controller.quorum.retry.backoff.ms": "20",
        "metadata.max.idle.interval.ms": "500",
        "unclean.leader.election.interval.ms": "2000",
    }
)
_ZOOKEEPER: Final[Mapping[str, str]] = MappingProxyType(
    {
        # As long as a KRaft broker's session above.
        "zookeeper.session.timeout.ms": "3000",
        # A broker exits if it gets no session within this time. The default, the session time-out, is too short on a
        # machine where ZooKeeper itself is still starting.
        "zookeeper.connection.timeout.ms": "60000",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
)

MODES: Final[Mapping[str, MetadataMode]] = MappingProxyType(
    {
        "kraft": MetadataMode("controller", False, "", True, "broker.session.timeout.ms", _KRAFT),
        "zookeeper": MetadataMode(
            "zookeeper", True, "-zk", False, "zookeeper.session.timeout.ms", _ZOOKEEPER
        ),
    }
)


IMAGE_ALONE: Final = "an image runs in containers alone: backend: docker"
RULES_ALONE: Final = "a patch of Byteman rules runs in processes alone: backend: process"
RULES_SUFFIX: Final = ".btm"
"""Suffix of a patch that is a script of Byteman rules."""
NEWEST_RELEASE: Final = "newest"
"""Value of `kafka` in a file that stands for the newest release that Maven's repositories offer."""
_VERSION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\Z")
ORIGINS: Final = ("path", "patch", "image")
"""Fields for the origin of a Kafka that is no published release."""


@dataclass(frozen=True)
class KafkaBuild:
    """The Kafka that a node runs. At most one of `path`, `patch` and `image` is given; none: a published release."""

    version: str
    """Number of the release, such as 4.3.1. For a build: the number in its jars, without a suffix such as
    -SNAPSHOT."""
    path: str | None = None
    """Path of a source tree, a distribution folder or a .tgz."""
    patch: str | None = None
    """Jar or folder of classes that comes before the release's jars in the class path. Or a script of Byteman rules
    (`.btm`), which every node loads at its start."""
    image: str | None = None
    """Name of a container image that follows the conventions of apache/kafka."""
    digest: str | None = None
    """Digest of the files of a build, a patch or an image. It is filled in when a file is read."""
    name: str | None = None
    """Name in cases, reports and comparisons. None: it is made from `version`, `patch`, `path` and `image`."""

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(one.name for one in fields(cls))

    @property
    def is_release(self) -> bool:
        return not (self.path or self.patch or self.image)

    @property
    def has_rules(self) -> bool:
        """True if the patch is a script of Byteman rules."""
        return self.patch is not None and self.patch.endswith(RULES_SUFFIX)

    @property
    def is_known(self) -> bool:
        """True for a published release that `releases.json` lists."""
        return self.is_release and self.version in RELEASES

    @property
    def label(self) -> str:
        if self.name:
            return self.name
        if self.patch:
            return f"{self.version}+{Path(self.patch).name}"
        return self.path or self.image or self.version

    def __str__(self) -> str:
        return self.label if self.version in self.label else f"{self.label} ({self.version})"

    @property
    def assumption(self) -> str:
        """A sentence that says which release's protocol rules are assumed for a Kafka that is no known release; '' for
        a known release."""
        if self.is_known:
            return ""
        what = f"Kafka {self}"
        why = "is not among the known releases" if self.is_release else "is not a published release"
        return f"{what} {why}: the rules of {line_of(self.version)} are assumed"

    def data(self) -> JsonValue:
        """Return the value of `kafka` as a file writes it: the version as text if no other field is given, else a
        mapping of the fields that are not None."""
        given: dict[str, JsonValue] = {
            one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None
        }
        return self.version if set(given) == {"version"} else given


def not_a_version(text: str) -> str | None:
    """Return why `text` is no full version that ackproof supports; None if it is one."""
    if not _VERSION.match(text):
        return f"expected a full version such as {DEFAULT}, not '{text[:60]}'"
    return too_old(text)


def _read_build(value: object) -> KafkaBuild:
    """Return the build of a `kafka` value that `plan.builds` has filled in: a full version as text, or a mapping of
    `KafkaBuild`'s fields to texts. The mapping needs a full version, and at most one of `path`, `patch` and `image`. A
    `KafkaBuild` is returned as it is. Raises `PydanticCustomError`, with the message to show, for any other value."""
    match value:
        case KafkaBuild():
            return value
        case str() if _VERSION.match(value):
            return KafkaBuild(value)
        case int() | float() if not isinstance(value, bool):
            raise wrong(
                f"a version is a text: without quotes this is the number {value}", f'write it as "{DEFAULT}"'
            )
        case Mapping():
            return _read_fields({str(key): text for key, text in value.items()})
    builds = f"{NEWEST_RELEASE}, {{path: …}}, {{version: …, patch: …}} or {{image: …}}"
    raise wrong(expected(f'a full version in quotes, such as "{DEFAULT}", or {builds}'))


def _read_fields(given: dict[str, object]) -> KafkaBuild:
    known = KafkaBuild.field_names()
    texts = {
        name: text for name, text in given.items() if isinstance(text, str) and text.isprintable() and text
    }
    if strange := [name for name in given if name not in known]:
        raise wrong(f"kafka has no field '{strange[0][:60]}'", f"it has {', '.join(known)}")
    if len(texts) < len(given):
        raise wrong(expected("texts in quotes"))
    if len(origins := [name for name in ORIGINS if name in given]) > 1:
        raise wrong(f"{' and '.join(origins)}: give one of them")
    if not _VERSION.match(texts.get("version", "")):
        raise wrong(f'of which release? Give a full version, such as version: "{DEFAULT}"')
    return KafkaBuild(**texts)


BUILD_SCHEMA: Final[JsonValue] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {name: {"type": "string", "minLength": 1} for name in KafkaBuild.field_names()},
    "anyOf": [{"required": [origin]} for origin in ORIGINS],
}
Kafka: TypeAlias = Annotated[
    KafkaBuild,
    BeforeValidator(_read_build),
    PlainSerializer(KafkaBuild.data, return_type=JsonValue),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "string",
                    "pattern": rf"^([0-9]+\.[0-9]+\.[0-9]+|{NEWEST_RELEASE})$",
                    "examples": [DEFAULT, LAST_WITH_ZOOKEEPER, NEWEST_RELEASE],
                },
                BUILD_SCHEMA,
            ],
            "title": "Kafka",
        }
    ),
]
"""The value of `kafka` in a file, read as a `KafkaBuild`."""


class BrokerFile(Spec):
    """A server.properties file that a team uses (`settings_from`). `path`: as the experiment writes it.

    `settings`: settings of the file; `cluster.config` has them too, except where the experiment sets another value.
    `ignored`: reason → names of settings that are not taken over: ackproof sets them itself or drops them.
    """

    path: Text
    settings: Config
    ignored: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)


def _read_broker_file(value: object) -> object:
    if value is None or isinstance(value, dict | BrokerFile):
        return value
    raise wrong(expected("the path of a broker file, such as server.properties"))


_PATH_SCHEMA = WithJsonSchema({"type": "string", "minLength": 1, "title": "Broker file"})
BrokerFileField: TypeAlias = Annotated[BrokerFile | None, BeforeValidator(_read_broker_file), _PATH_SCHEMA]
