"""Effects of each Kafka setting: on durability, duplicates, order, visibility, availability, or on no guarantee.

`setting_effects.txt` has the effects, by patterns of names. `kafka_settings.tsv` lists the settings of the known
releases (`python tools/kafka_settings.py`). `python -m ackproof.experiment.setting_effects` prints `docs/settings.md`;
a test compares both, and fails for a setting that has no row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.base.advice import Advice
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.kafka import KNOWN_FEATURES, LINES, numbers
from ackproof.experiment.problems import nearest
from ackproof.experiment.settings import Scope, why_reserved

NAMES: Final = Path(__file__).with_name("kafka_settings.tsv")
_EFFECTS: Final = Path(__file__).with_name("setting_effects.txt")


_OF_PLUGINS: Final = ("config.providers.", "rsm.config.", "rlmm.config.")
"""Prefixes of settings of plugins, which no ConfigDef lists."""


class Effect(StrEnum):
    """A property of the records or the cluster that a setting can affect."""

    DURABILITY = "durability"
    DUPLICATES = "duplicates"
    ORDER = "order"
    VISIBILITY = "visibility"
    AVAILABILITY = "availability"


class SettingRow(NamedTuple):
    """Effects of the settings whose names match these patterns (`*` for any text). `what`: what the settings do, in
    words. `judged`: the part of ackproof that takes the effects into account; '' for none."""

    patterns: tuple[str, ...]
    effects: tuple[Effect, ...]
    judged: str
    what: str

    @property
    def unjudged(self) -> bool:
        """True if the settings affect a guarantee and no verdict takes their effect into account."""
        return bool(self.effects) and not self.judged


class KafkaSetting(NamedTuple):
    """A setting of brokers or topics. `first`, `last`: first and last release line that has it; `last` '': the newest
    line has it.

    `default`: the default in its newest line; '' for none. `earlier`: other defaults in earlier lines, `3.9=1;4.0=2`.
    """

    scope: Scope
    name: str
    first: str
    last: str
    default: str
    earlier: str = ""

    def default_in(self, version: str) -> str:
        others = dict(one.split("=", 1) for one in self.earlier.split(";") if one)
        return others.get(".".join(version.split(".")[:2]), self.default)

    def is_in(self, version: str) -> bool:
        """Return True if a release has the setting. A release newer than all known lines counts as the newest known
        line."""
        line = min(numbers(version)[:2], LINES[-1].number)
        return numbers(self.first) <= line and (not self.last or line <= numbers(self.last))


@cache
def rows() -> tuple[SettingRow, ...]:
    """Return the rows of `setting_effects.txt`, in file order."""
    found = []
    for line in _EFFECTS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, effects, judged, what = (cell.strip() for cell in line.split("|"))
            kinds = () if effects == "none" else tuple(map(Effect, effects.split(", ")))
            found.append(SettingRow(tuple(names.split(", ")), kinds, judged.removeprefix("-"), what))
    return tuple(found)


@cache
def kafka_settings() -> Mapping[tuple[Scope, str], KafkaSetting]:
    """Return every broker and topic setting of the known releases, by scope and name."""
    lines = (line.split("\t") for line in NAMES.read_text(encoding="utf-8").splitlines()[1:])
    found = [KafkaSetting(Scope(scope), *rest) for scope, *rest in lines]
    return {(one.scope, one.name): one for one in found}


def kafka_default(name: str) -> str:
    """Return Kafka's default of a broker setting in the newest line that has it, '' for none. Raises KeyError if no
    known release has the setting."""
    return kafka_settings()[Scope.BROKER, name].default


@cache
def row_of(name: str) -> SettingRow | None:
    """Return the first row of `setting_effects.txt` whose patterns match the name of a setting or feature; None without
    a match."""
    return next((row for row in rows() if any(fnmatchcase(name, one) for one in row.patterns)), None)


def unknown_setting(name: str, version: str) -> Advice:
    """Return why brokers of this release ignore a setting, with the name that was probably meant. Return '' if they
    know the setting, or if it is a plugin's (`_OF_PLUGINS`)."""
    known = {one.name: one for (scope, _), one in kafka_settings().items() if scope is Scope.BROKER}
    setting = known.get(name)
    if name.startswith(_OF_PLUGINS) or (setting is not None and setting.is_in(version)):
        return Advice("")
    near = nearest(name, [one.name for one in known.values() if one.is_in(version)], cutoff=0.8)
    fact = f"Kafka {version} has no broker setting '{name}': brokers pass over it"
    return Advice(fact, suggestion=near)


def unjudged(case: Case) -> Iterator[str]:
    """Yield in words each effect of this case's settings that no verdict takes into account, and each setting that is
    unknown. A value that is Kafka's default is left out. Effects on availability alone come last, in one text.
    """
    spec = case.experiment
    version, unknown = spec.cluster.kafka.version, not spec.cluster.kafka.is_known
    slow = []
    for scope, name, value in dict.fromkeys(_find_settings(spec, case)):
        row, setting = row_of(name), None if scope is None else kafka_settings().get((scope, name))
        if scope is Scope.BROKER and not unknown and (why := unknown_setting(name, version)):
            yield f"{name}={value}: {why}"
        elif setting is None and row is None:
            yield f"{name}={value}: nobody has said what this setting affects"
        elif (
            row is None or not row.unjudged or (setting is not None and setting.default_in(version) == value)
        ):
            continue
        elif row.effects == (Effect.AVAILABILITY,):
            slow.append(f"{name}={value}")
        else:
            yield f"the effect on {' and '.join(row.effects)} of {name}={value} ({row.what})"
    if slow:
        yield f"the effect on availability, except by what is expected of quantities, of {', '.join(slow)}"


def _find_settings(spec: ExperimentSpec, case: Case) -> Iterator[tuple[Scope | None, str, str]]:
    """Yield scope, name and value of each setting of nodes and topics that the experiment gives, or that a fault sets
    for a while. Yield features too, with the scope None. Settings that follow from `timing` or groups are left out."""
    for config in (spec.cluster.config, *spec.cluster.broker_config.values()):
        yield from ((Scope.BROKER, name, value) for name, value in config.items())
    for topic, asked in spec.topics.items():
        yield from ((Scope.TOPIC, name, value) for name, value in asked.config.items())
        for fault in case.faults:
            for name, value in fault.may_set(spec, topic).items():
                yield (Scope.TOPIC if (Scope.TOPIC, name) in kafka_settings() else Scope.BROKER, name, value)
    yield from ((None, name, str(level)) for name, level in spec.cluster.features.items())


_INTRODUCTION: Final = """\
# What each setting affects

Generated by `python -m ackproof.experiment.setting_effects` from `setting_effects.txt`; a test holds both equal. Every
setting of brokers and topics, and every feature, of Kafka {line} and of the known lines before it has one row.

*Judged by* says what takes a setting into account. `prediction`: the reference implementation; `forbidden`: which
classes of anomalies are forbidden, and so what may be expected; `replay`: which steps are legal; `retention`,
`compaction`: which records may be gone. Where it is empty, a verdict says that the effect of the setting is not judged,
unless the experiment gives Kafka's default. A setting that the release does not have is a warning of `ackproof
validate`, and not judged either: brokers pass over it.
"""


def markdown() -> str:
    """Return the text of `docs/settings.md`: which settings affect a guarantee, and which part of ackproof judges
    that."""
    names_by_row: dict[SettingRow, list[str]] = {row: [] for row in rows()}
    refused: dict[str, list[str]] = {}
    names = [*((setting.scope, setting.name) for setting in kafka_settings().values())]
    for scope, name in [*names, *((None, name) for name in KNOWN_FEATURES)]:
        why, row = None if scope is None else why_reserved(scope, name), row_of(name)
        if why is not None:
            refused.setdefault(why, []).append(name)
        elif row is not None and name not in names_by_row[row]:
            names_by_row[row].append(name)
    every = [(found, ", ".join(row.effects), row.judged, row.what) for row, found in names_by_row.items()]
    sections = {
        "Settings that affect a promise": [cells for cells in every if cells[1]],
        "Settings without an effect on a promise": [
            (found, "none", "", what) for found, effects, _, what in every if not effects
        ],
        "Settings that are refused": [(found, "refused", "", why) for why, found in refused.items()],
    }
    lines = [_INTRODUCTION.format(line=LINES[-1])]
    for title, section in sections.items():
        lines += [f"## {title}", "", "| settings | affects | judged by | what it does |", "|---|---|---|---|"]
        lines += [
            f"| {', '.join(f'`{name}`' for name in found)} | {effects} | {judged} | {what} |"
            for found, effects, judged, what in section
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
