"""Settings as the environment of a container, by the conventions of the image apache/kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import BadInput

JVM_FLAGS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.awt.headless=true"
"""As on the process backend. Words of the image's own that name another collector would clash with them."""
_PLAIN: Final = re.compile(r"[a-z0-9._-]+")
_RUNS: Final = re.compile(r"[._-]{2,}")


def settings_as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """`num.io.threads` → `KAFKA_NUM_IO_THREADS`; a `_` becomes `__`, a `-` becomes `___`.

    Raises `BadInput` for a key that these rules cannot carry: the image turns names into lower case.
    """
    if unfit := [key for key in settings if not _PLAIN.fullmatch(key) or _RUNS.search(key)]:
        raise BadInput(
            f"the setting {unfit[0]} cannot be given to a container: only small letters, digits and single . _ - "
            "pass through a variable KAFKA_*"
        )
    return {f"KAFKA_{_variable(key)}": value for key, value in settings.items()}


def _variable(key: str) -> str:
    return key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
