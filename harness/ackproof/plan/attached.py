"""A case on a cluster that someone else runs: its topics get names that nobody else has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from ackproof.experiment.case import Case
from ackproof.experiment.problems import path_text
from ackproof.experiment.spec import attached_topic
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.paths import parse_path

Names = Mapping[str, str]


def own_names(case: Case, run_id: str) -> dict[str, str]:
    """The run's own name of each topic: `ackproof-<run>-<name>`."""
    return {name: attached_topic(name, run_id) for name in case.experiment.topics}


def on_foreign_ground(case: Case, run_id: str) -> Case:
    """The same case with the run's own topics, wherever topics are named: roles, triggers, expectations, commands.

    Its id and settings stay in the words of the file.
    """
    names = own_names(case, run_id)
    resolved = cast(dict[str, JsonValue], case_to_json(case))
    experiment = cast(dict[str, JsonValue], resolved["experiment"])
    # Nobody shortened the time-outs of such a cluster: what is late there is told by Kafka's own.
    cast(dict[str, JsonValue], experiment["cluster"])["timing"] = "kafka"
    experiment["topics"] = {
        names[name]: topic for name, topic in cast(dict[str, JsonValue], experiment["topics"]).items()
    }
    workload = cast(dict[str, JsonValue], experiment["workload"])
    producers = cast(dict[str, JsonValue], workload["producers"])
    if "topics" in producers:
        producers["topics"] = _renamed(producers["topics"], names)
    experiment["faults"] = _renamed(experiment["faults"], names)
    resolved["storms"] = _renamed(resolved["storms"], names)
    for expectation in cast(list[dict[str, JsonValue]], experiment["expect"]):
        given = cast(dict[str, JsonValue], expectation.get("given", {}))
        expectation["given"] = {_path(path, names): value for path, value in given.items()}
        for quantity in [name for name in expectation if name != "given"]:
            expectation[cast(str, _renamed(quantity, names))] = expectation.pop(quantity)
    return case_from_json(resolved)


def _renamed(value: JsonValue, names: Names) -> JsonValue:
    """Every text that is a topic, and every place `topic/partition` within a text."""
    match value:
        case str():
            if value in names:
                return names[value]
            for name, own in names.items():
                value = re.sub(rf"(?<![A-Za-z0-9._-]){re.escape(name)}(?=/[0-9])", own, value)
            return value
        case list():
            return [_renamed(item, names) for item in value]
        case dict():
            return {key: _renamed(item, names) for key, item in value.items()}
        case _:
            return value


def _path(text: str, names: Names) -> str:
    try:
        path = parse_path(text)
    except ValueError:
        return text
    if len(path) > 1 and path[0] == "topics" and path[1] in names:
        return path_text(("topics", names[str(path[1])], *path[2:]))
    return text
