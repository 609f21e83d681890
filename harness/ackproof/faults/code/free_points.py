"""A point of Kafka's code that has no name: a class and a method, and a check whether the jars of a release
have them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from ackproof.experiment.base import Spec, matching
from ackproof.experiment.kafka import KafkaBuild
from ackproof.faults.code.points import CodePlace
from ackproof.provision.class_files import MissingName, find_missing_name
from ackproof.provision.jars import cached_classpath

CLASS_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*\Z")
_METHOD: Final = re.compile(r"(<init>|[A-Za-z_$][\w$]*)(\([\w$.,\[\] ]*\))?\Z")
_PLACES: Final = "ENTRY, EXIT, EXCEPTION EXIT, LINE n, or [AFTER] INVOKE, READ, WRITE, SYNCHRONIZE, THROW"
_AT: Final = re.compile(
    r"(ENTRY|EXIT|EXCEPTION EXIT|LINE \d+|SYNCHRONIZE|THROW|(AFTER )?(INVOKE|READ|WRITE|SYNCHRONIZE) [^\n]+)\Z"
)
_CONDITION: Final = re.compile(r"(?!.*\b(DO|ENDRULE|RULE)\b)[^\n]+\Z")


class FreePoint(Spec):
    """A place in a method of Kafka's, for a point that has no name."""

    model_config = ConfigDict(populate_by_name=True)

    class_name: Annotated[str, matching(CLASS_NAME, "the full name of a class")] = Field(
        alias="class", description="Full name of the class, such as kafka.cluster.Partition."
    )
    method: Annotated[str, matching(_METHOD, "the name of a method, with parameter types if need be")] = (
        Field(description="Method; with parameter types, only that overload.")
    )
    at: Annotated[str, matching(_AT, f"a place as Byteman names it: {_PLACES}")] = Field(
        "ENTRY", description=f"Place in the method, as Byteman names it: {_PLACES}."
    )
    when: Annotated[str, matching(_CONDITION, "a condition of one line, as Byteman takes it")] = Field(
        "TRUE",
        description="Only where this condition of Byteman's holds; $0 is the object, $1 the first argument.",
    )

    def place(self) -> CodePlace:
        return CodePlace(self.class_name, self.method, self.at, self.when)

    def missing_in(self, builds: Iterable[KafkaBuild]) -> tuple[KafkaBuild, MissingName] | None:
        """Return the first build and the class or method that it lacks, if every build lacks one of them; else None.
        None also if a build cannot be examined: its jars are not in the cache, or cannot be read."""
        lacks: list[tuple[KafkaBuild, MissingName]] = []
        for build in builds:
            jars = cached_classpath(build)
            try:
                lack = find_missing_name(self.class_name, self.method, jars) if jars else None
            except (OSError, zipfile.BadZipFile):
                return None  # a broken cache: said where the jars are verified
            if lack is None:
                return None
            lacks.append((build, lack))
        return lacks[0] if lacks else None
