"""What a file leaves open of the Kafka that it names, filled in before the file is checked.

`newest` becomes the newest release; a path and a patch become absolute; a build gets the version and digest of its
jars, and a name. A resolved case holds all of it: its verdict can be repeated when the build is gone, and `replay`
refuses another build.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path as FilePath

from ackproof.base.errors import AckproofError
from ackproof.experiment.kafka import NEWEST_RELEASE, ORIGINS, KafkaBuild
from ackproof.experiment.nodes import NOWHERE, ListNode, MapNode, Node, ScalarNode, plain
from ackproof.experiment.problems import InvalidExperiment, Path
from ackproof.plan.diagnostics import Problems
from ackproof.provision.jars import identify_build
from ackproof.provision.releases import find_newest_release


def fill_in_builds(file: str, root: MapNode, folder: FilePath) -> MapNode:
    """The experiment with every Kafka that it names filled in; paths are relative to `folder`, where the file is.

    Raises `InvalidExperiment` with all that cannot be.
    """
    found = Problems(file, root)
    filled_in = _Reader(found, folder).walk(root, ())
    if found.problems:
        raise InvalidExperiment(found.problems)
    assert isinstance(filled_in, MapNode)
    return filled_in


class _Reader:
    def __init__(self, found: Problems, folder: FilePath) -> None:
        self._found = found
        self._folder = folder

    def walk(self, node: Node, where: Path, key: str = "", above: str = "") -> Node:
        """What stands at `where`, below `key`, which stands below `above`."""
        if isinstance(node, ListNode):
            items = [self.walk(item, (*where, at), key, above) for at, item in enumerate(node.items)]
            return replace(node, items=items)
        if key.rpartition(".")[2] == "kafka" or f"{above}.{key}".endswith("upgrade.to"):
            node = self._filled_in(node, where)
        if isinstance(node, MapNode):
            return replace(
                node,
                entries={
                    name: self.walk(value, (*where, name), name, key) for name, value in node.entries.items()
                },
            )
        return node

    def _filled_in(self, node: Node, where: Path) -> Node:
        try:
            if isinstance(node, ScalarNode) and node.value == NEWEST_RELEASE:
                version = find_newest_release()
                return replace(node, value=version, text=version)
            given = plain(node)
            if isinstance(node, MapNode) and isinstance(given, dict) and not given.keys().isdisjoint(ORIGINS):
                return self._build(node, {name: str(value) for name, value in given.items()})
        except AckproofError as error:
            self._found.report(where, str(error))
        return node

    def _build(self, node: MapNode, given: dict[str, str]) -> MapNode:
        """A build, a patch or an image with its version, its digest and a name. What is wrong with it otherwise is said
        when it is read."""
        if len(given.keys() & set(ORIGINS)) > 1 or not given.keys() <= set(KafkaBuild.field_names()):
            return node
        folder = FilePath.cwd() if node.mark == NOWHERE else self._folder
        written = KafkaBuild(**{"version": "", **given})
        for name in ("path", "patch"):
            if name in given:
                given[name] = os.path.normpath(folder.absolute() / FilePath(given[name]).expanduser())
        jars = None
        if "image" in given:
            # The libraries that speak to an engine are loaded only for those who ask for one.
            from ackproof.cluster.containers.images import copy_image_jars

            jars = copy_image_jars(given["image"])
        build = identify_build(KafkaBuild(**{"version": "", **given}), jars)
        texts = {name: text for name, text in vars(replace(build, name=written.label)).items() if text}
        return MapNode(
            node.mark,
            {name: ScalarNode(text, text, node.mark) for name, text in texts.items()},
            {name: node.keys.get(name, ScalarNode(name, name)) for name in texts},
        )
