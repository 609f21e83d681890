"""State of the plugin in a pytest process (its session and its stash keys), and a check whether a YAML file is an
experiment.

Light to import: pytest loads it for every YAML file that it meets.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from ackproof.testing.cluster import KafkaCluster
    from ackproof.testing.items import PluginSession

_SESSION: Final = pytest.StashKey["PluginSession"]()
CLUSTERS: Final = pytest.StashKey[list["KafkaCluster"]]()
"""Stash key of the clusters that the fixtures of a test have started."""
PASSED: Final = pytest.StashKey[bool]()
"""Stash key of a test: True if its last phase (setup, call or teardown) did not fail."""


def session_of(config: pytest.Config) -> PluginSession:
    """Return the plugin's session of this pytest process, which the first call creates. Raises `BadInput` if this
    machine has no UTF-8 locale, and the current folder or an argument is not ASCII."""
    if _SESSION not in config.stash:
        from ackproof.base.environment import use_utf8_in_children
        from ackproof.testing.items import PluginSession

        use_utf8_in_children()
        out: str | None = config.getoption("ackproof_out")
        worker: dict[str, str] = getattr(config, "workerinput", {})
        config.stash[_SESSION] = PluginSession(
            out=config.rootpath / "runs" if out is None else config.invocation_params.dir / out,
            seed=config.getoption("ackproof_seed"),
            keep_data=config.getoption("ackproof_keep_data"),
            worker=worker.get("workerid", ""),
            command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        )
    return config.stash[_SESSION]


def session_if_any(config: pytest.Config) -> PluginSession | None:
    """Return the plugin's session of this pytest process; None if it has not been created."""
    return config.stash.get(_SESSION, None)


def display_path(path: Path) -> str:
    """Return the path as a user would type it: relative if it is below the current folder."""
    here, whole = Path.cwd(), path.absolute()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


@contextmanager
def own_warnings() -> Iterator[None]:
    """Suppress warnings of the harness's libraries within the block, because tests may turn every warning into an
    error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_MOST_BYTES: Final = 1 << 20
"""Files above this size are not taken for experiments."""
_TOP_LEVEL: Final = re.compile(rb"""^["']?([A-Za-z_][\w.-]*)["']?[ \t]*:(?=[ \t\r\n]|$)""", re.MULTILINE)
_SCHEMA: Final = re.compile(rb"^#[^\n]*\$schema=\S*experiment\.schema\.json", re.MULTILINE)
_FIELDS: Final = frozenset(
    b"name description claims backend cluster topics workload matrix faults expect evidence repeat seed".split()
)
_TELLING: Final = frozenset({b"workload", b"faults"})


def is_experiment(path: Path) -> bool:
    """Return True if the file is meant to be an experiment, valid or not; False if it cannot be read or is larger than
    `_MOST_BYTES`.

    An experiment names the schema of experiments; or its top level has `topics` and one of `cluster`, `workload`,
    `faults`, and more fields of an experiment than other fields. `cluster` and `topics` alone are not enough: any
    service that uses Kafka may have them.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return False
        text = path.read_bytes()
    except OSError:
        return False
    if _SCHEMA.search(text):
        return True
    if b"topics" not in text:
        return False
    keys = set(_TOP_LEVEL.findall(text))
    known = keys & _FIELDS
    if b"topics" not in keys or len(known) <= len(keys - _FIELDS):
        return False
    return bool(keys & _TELLING) or (b"cluster" in keys and len(known) > 2)
