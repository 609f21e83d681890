"""Fills in the Kafka builds and broker files that an experiment names, before it is checked.

`kafka: newest` becomes the newest release. The path of a build or patch becomes absolute. A build gets a name, and
the version and digest of its jars. A broker file (`settings_from`) is replaced by its path and its settings. A
resolved case holds all of this. So a verdict can be repeated when the build is gone, and `replay` refuses another
build.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Final

from ackproof.base.advice import advice_of
from ackproof.base.errors import AckproofError, BadInput
from ackproof.experiment.base import SETTING_NAME
from ackproof.experiment.kafka import NEWEST_RELEASE, ORIGINS, KafkaBuild
from ackproof.experiment.problems import (
    NOWHERE,
    InvalidExperiment,
    ListNode,
    MapNode,
    Node,
    Path,
    ScalarNode,
    nodes_of,
    plain,
)
from ackproof.experiment.settings import KEPT, Scope, why_reserved
from ackproof.plan.diagnostics import Problems
from ackproof.plan.paths import override
from ackproof.plan.source import MAX_BYTES, read

_SECRETS: Final = re.compile("password|secret|jaas|license|credential")
"""Pattern of names of settings that may hold secrets. Such settings of a broker file are left out."""


def fill_in_builds(file: str, root: MapNode, folder: FilePath) -> MapNode:
    """Return the experiment `root` with the version and digest of every Kafka build, and the settings of every
    broker file.

    `file`: the file's name in messages. `folder`: the file's folder, to which its paths are relative; paths from the
    command line are relative to the working folder. Raises `InvalidExperiment` with all problems, OSError for an
    unreadable file of a build.
    """
    found = Problems(file, root)

    def fill_in(node: Node, where: Path, key: str = "", above: str = "") -> Node:
        """Return the node with every Kafka build and broker file in it filled in. `where`: path of the node.
        `key`: key of the node. `above`: key of its parent."""
        if isinstance(node, ListNode):
            items = [fill_in(item, (*where, at), key, above) for at, item in enumerate(node.items)]
            return replace(node, items=items)
        name = key.rpartition(".")[2]
        base = FilePath.cwd() if node.mark == NOWHERE else folder  # NOWHERE: from the command line
        try:
            if name == "settings_from" and isinstance(node, ScalarNode) and isinstance(node.value, str):
                return _read_broker_file(node, base)
            # `to:` of the fault `upgrade` is a Kafka too.
            if name == "kafka" or f"{above}.{key}".endswith("upgrade.to"):
                node = _identify(node, base)
        except AckproofError as error:
            found.report(where, advice_of(error))
        if isinstance(node, MapNode):
            entries = {
                name: fill_in(value, (*where, name), name, key) for name, value in node.entries.items()
            }
            return replace(node, entries=entries)
        return node

    filled_in = fill_in(root, ())
    if found.problems:
        raise InvalidExperiment(found.problems)
    assert isinstance(filled_in, MapNode)
    return filled_in


def _identify(node: Node, base: FilePath) -> Node:
    """Return one value of `kafka`, filled in: `newest` becomes a version; a build, a patch or an image gets its
    version, digest and name. Any other value is returned unchanged. `base`: folder to which paths are relative.
    Raises `AckproofError` if the newest release cannot be found or the build cannot be identified, OSError if a file of
    the build cannot be read."""
    if isinstance(node, ScalarNode) and node.value == NEWEST_RELEASE:
        # Imported here, as below: most experiments name a release, and need neither Maven nor jars.
        from ackproof.provision.releases import find_newest_release

        version = find_newest_release()
        return replace(node, value=version, text=version)
    if not isinstance(node, MapNode):
        return node
    given = {name: str(plain(value)) for name, value in node.entries.items()}
    if len(given.keys() & set(ORIGINS)) != 1 or not given.keys() <= set(KafkaBuild.field_names()):
        return node
    written = KafkaBuild(**{"version": "", **given})
    for name in ("path", "patch"):
        if name in given:
            given[name] = os.path.normpath(base.absolute() / FilePath(given[name]).expanduser())
    from ackproof.provision.jars import identify_build

    jars = None
    if "image" in given:
        # Imported here: only images need the libraries of a container engine.
        from ackproof.cluster.containers.images import copy_image_jars

        jars = copy_image_jars(given["image"])
    build = identify_build(KafkaBuild(**{"version": "", **given}), jars)
    texts = {name: text for name, text in vars(replace(build, name=written.label)).items() if text}
    return MapNode(
        node.mark,
        {name: ScalarNode(text, text, node.mark) for name, text in texts.items()},
        {name: node.keys.get(name, ScalarNode(name, name)) for name in texts},
    )


def _read_broker_file(node: ScalarNode, folder: FilePath) -> MapNode:
    """Return the long form of a `settings_from` that names a file (`node`). It has the path, the settings, and under
    `ignored` the names of ignored settings by the reason.

    The path is relative to `folder`. Raises `BadInput` if the file cannot be read or parsed, or is larger than 1 MiB.
    Also raises it for a file without settings, and for an entry that cannot be a broker setting.
    """
    from ackproof.cluster.properties import (
        parse,
    )  # imported here: it loads much that only users of a broker file need

    file, raw = read(folder / FilePath(node.text).expanduser())
    settings: dict[str, Node] = {}
    ignored: dict[str, list[str]] = {}
    try:
        found = parse(raw[:MAX_BYTES].decode("latin-1"))  # the encoding in which Kafka reads it
    except ValueError as error:
        raise BadInput(f"{file}: {error}") from error
    for name, value in found.items():
        if not SETTING_NAME.match(name) or not value.isprintable():
            raise BadInput(
                f"{file}: '{name[:60]}' is no setting of a broker", "expected lines such as num.io.threads=8"
            )
        why = KEPT if _SECRETS.search(name) else why_reserved(Scope.BROKER, name)
        if why is None:
            settings[name] = ScalarNode(value.strip(), value.strip(), node.mark)
        else:
            ignored.setdefault(why, []).append(name)
    if not found or len(raw) > MAX_BYTES:
        raise BadInput(f"{file}: {'it is larger than 1 MiB' if found else 'it holds no settings'}")
    reasons = _mapping(node, {why: nodes_of([*names]) for why, names in ignored.items()})
    return _mapping(node, {"path": node, "settings": _mapping(node, settings), "ignored": reasons})


def _mapping(at: ScalarNode, entries: Mapping[str, Node]) -> MapNode:
    return MapNode(at.mark, {**entries}, {name: ScalarNode(name, name, at.mark) for name in entries})


def with_broker_file(root: MapNode) -> MapNode:
    """Return the experiment with the settings of its broker file (server.properties) merged into `cluster.config`. The
    experiment's own settings override them. Unless the experiment sets `cluster.timing`, it becomes `kafka`: time-outs
    that nobody sets have Kafka's own defaults. Without a broker file the experiment is returned unchanged."""
    cluster = root.entries.get("cluster")
    given = cluster.entries.get("settings_from") if isinstance(cluster, MapNode) else None
    settings = given.entries.get("settings") if isinstance(given, MapNode) else None
    if not isinstance(cluster, MapNode) or given is None or not isinstance(settings, MapNode):
        return root
    own = cluster.entries.get("config", MapNode(given.mark))
    if isinstance(own, MapNode):
        entries, keys = {**settings.entries, **own.entries}, {**settings.keys, **own.keys}
        root = override(root, ("cluster", "config"), replace(own, entries=entries, keys=keys))
    if "timing" not in cluster.entries:
        root = override(root, ("cluster", "timing"), ScalarNode("kafka", "kafka", given.mark))
    return root
