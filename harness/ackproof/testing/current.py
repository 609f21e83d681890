"""The one session of this pytest process, and the keys under which pytest keeps what is ours. Light to import."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from ackproof.testing.cluster import KafkaCluster
    from ackproof.testing.session import PluginSession

_SESSION: Final = pytest.StashKey["PluginSession"]()
CLUSTERS: Final = pytest.StashKey[list["KafkaCluster"]]()
"""On an item: the clusters that its fixtures started."""
PASSED: Final = pytest.StashKey[bool]()
"""On an item: whether what was last told of it is no failure."""


def session_of(config: pytest.Config) -> PluginSession:
    """The session, made when it is first asked for."""
    if _SESSION not in config.stash:
        from ackproof.base.environment import use_utf8_in_children
        from ackproof.testing.session import PluginSession

        use_utf8_in_children()
        out: str | None = config.getoption("ackproof_out")
        config.stash[_SESSION] = PluginSession(
            out=config.rootpath / "runs" if out is None else config.invocation_params.dir / out,
            seed=config.getoption("ackproof_seed"),
            keep_data=config.getoption("ackproof_keep_data"),
            worker=worker_of(config),
            command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        )
    return config.stash[_SESSION]


def session_if_any(config: pytest.Config) -> PluginSession | None:
    """The session, if anything has asked for it."""
    return config.stash.get(_SESSION, None)


def worker_of(config: pytest.Config) -> str:
    """The name of this xdist worker, such as gw0; '' in a process of its own."""
    said: dict[str, str] = getattr(config, "workerinput", {})
    return said.get("workerid", "")


def shown(path: Path) -> str:
    """`path` as one would type it: relative where it is below the present folder."""
    here, whole = Path.cwd(), path.absolute()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


@contextmanager
def own_warnings() -> Iterator[None]:
    """What libraries of the harness warn of is not about the tests, which may hold every warning for an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
