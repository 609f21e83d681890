"""Faults at points of the code, as in a file: the witness for every push, and the others at night; duds."""

from __future__ import annotations

from typing import Final

import pytest

from faultbench.dud import Dud
from faultbench.spoilt import nothing, without_its_act

_LEADER: Final = "target: leader(t/0)"
HALT: Final = f"at_code: {{point: leader-appended, do: halt, {_LEADER}, pass: 20}}"
PAUSE: Final = f"at_code: {{point: leader-appended, do: pause_thread, {_LEADER}}}"


def _at_night(fault: str) -> object:
    return pytest.param(fault, marks=pytest.mark.nightly)


AT_CODE: Final = [
    HALT,
    _at_night(PAUSE),
    _at_night(f"at_code: {{point: response-sent, do: pause_thread, {_LEADER}, pass: 5}}"),
    _at_night(f"at_code: {{point: leader-appended, do: delay, {_LEADER}, by: 500ms}}"),
    _at_night(f"at_code: {{point: leader-appended, do: throw, {_LEADER}}}"),
    _at_night(f"at_code: {{point: follower-fetch-read, do: halt, {_LEADER}, pass: 10}}"),
    _at_night("at_code: {point: checkpoint-before-rename, do: halt, target: follower(t/0)}"),
    _at_night(
        "at_code: {point: {class: kafka.server.ReplicaManager, method: appendRecords}, do: halt, "
        "target: leader(t/0)}"
    ),
]

CODE_DUDS: Final = {
    "at_code": Dud(
        "at_code: {point: leader-appended, do: halt, target: leader(t/0)}",
        "to be passed",
        {
            "ackproof.cluster.code_rules.CodeAgent.load": nothing,
            "ackproof.cluster.code_rules.CodeAgent.delete": nothing,
        },
        nightly=False,
    ),
    "a halt that does not halt": Dud(
        "at_code: {point: leader-appended, do: halt, target: leader(t/0)}",
        "acted, and no witness saw it",
        {"ackproof.faults.code.at_code.rule_text": without_its_act},
    ),
    "a thread that is not held": Dud(
        "at_code: {point: leader-appended, do: pause_thread, target: leader(t/0)}",
        "acted, and no witness saw it",
        {"ackproof.faults.code.at_code.rule_text": without_its_act},
    ),
    "an exception that is not thrown": Dud(
        "at_code: {point: leader-appended, do: throw, target: leader(t/0)}",
        "acted, and no witness saw it",
        {"ackproof.faults.code.at_code.rule_text": without_its_act},
    ),
}
