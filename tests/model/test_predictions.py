"""Tests of how a prediction is made from the explorer's answers: topics, partitions, faults, limits of the search.

The answers are planted; the explorer does not run, except where a test says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import Chance, PredictionFile
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.predict import prediction
from ackproof_model.predict.answers import Answer, Answers
from ackproof_model.predict.prediction import SearchOptions, _explored, predict_case, scopes_of
from ackproof_reference.explore.scope import ALL, NO_REDUCTIONS, Scope
from model_cases import case_of

POSSIBLE, IMPOSSIBLE, UNKNOWN = Chance.POSSIBLE, Chance.IMPOSSIBLE, Chance.UNKNOWN
KILL = "kill: {target: leader(orders/0)}"
Plant = Callable[..., list[Scope]]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Function that plants the explorer's answers for `lost` and `vanished`, and returns the list of searched scopes.
    `rotten`: answer for `lost` in scopes with a power loss."""

    def planted(lost: Chance, vanished: Chance = IMPOSSIBLE, rotten: Chance | None = None) -> list[Scope]:
        asked: list[Scope] = []

        def answers(scope: Scope, **_: object) -> Answers:
            asked.append(scope)
            one = rotten if rotten is not None and scope.budget.power_losses else lost
            return Answers(
                classes={"lost": Answer(chance=one), "vanished": Answer(chance=vanished)},
                states=10,
                exhausted=True,
                bound=100,
            )

        monkeypatch.setattr(prediction, "answers", answers)
        return asked

    return planted


def _chances(file: PredictionFile, partition: str = "") -> dict[str, Chance]:
    wanted = {"lost", "overwritten", "vanished", "conflict"}
    return {
        one.anomaly: one.chance
        for one in file.classes
        if one.anomaly in wanted and one.partitions == ((partition,) if partition else ())
    }


@pytest.mark.parametrize("lost", list(Chance), ids=str)
@pytest.mark.parametrize("vanished", list(Chance), ids=str)
def test_what_one_record_cannot_show_stands_and_falls_with_what_it_can(
    plant: Plant, lost: Chance, vanished: Chance
) -> None:
    plant(lost, vanished)
    found = _chances(predict_case(case_of(KILL)))
    assert found == {"lost": lost, "overwritten": lost, "vanished": vanished, "conflict": vanished}


def _told(fault: int | None) -> Event:
    return Event(
        t_ns=1, wall_ns=0, kind=EventKind.FAULT_ASKED, fault=fault, detail={"kind": "kill", "nodes": [4]}
    )


@pytest.mark.parametrize(
    ("acks", "events", "chance"),
    [
        ("0", None, POSSIBLE),
        ("0", (), IMPOSSIBLE),
        ("0", (_told(1),), POSSIBLE),
        ("0", (_told(None),), IMPOSSIBLE),
        ("1", None, IMPOSSIBLE),
        ("all", (_told(1),), IMPOSSIBLE),
    ],
    ids=["planned", "nothing happened", "it happened", "nobody's", "acks=1", "acks=all"],
)
def test_at_acks_0_whatever_breaks_a_connection_may_lose(
    plant: Plant, acks: str, events: tuple[Event, ...] | None, chance: Chance
) -> None:
    plant(IMPOSSIBLE)
    file = _explored(case_of("kill: {target: controller}", acks=acks), events, (), SearchOptions(100))
    (lost,) = (one for one in file.classes if one.anomaly == "lost")
    assert (lost.chance, lost.explored) == (chance, chance is IMPOSSIBLE)
    assert file.observed is (events is not None)
    assert _chances(file)["vanished"] is IMPOSSIBLE


def test_at_acks_0_what_is_possible_keeps_its_story(plant: Plant) -> None:
    plant(POSSIBLE)
    (lost,) = (one for one in predict_case(case_of(KILL, acks="0")).classes if one.anomaly == "lost")
    assert lost.explored


COMMAND = 'command: {inject: ["true"], check: ["false"], heal: ["true"]}'


@pytest.mark.parametrize(
    ("events", "refused"), [(None, True), ((_told(1),), True), ((), False)], ids=["planned", "done", "never"]
)
def test_a_command_that_was_never_run_keeps_nothing_from_being_predicted(
    plant: Plant, events: tuple[Event, ...] | None, refused: bool
) -> None:
    asked = plant(IMPOSSIBLE)
    file = _explored(case_of(COMMAND), events, (), SearchOptions(100))
    assert (asked == []) is refused
    assert (file.not_predicted == ("command: the effect of a command is unknown",)) is refused
    assert (_chances(file) == {}) is refused
    assert list(scopes_of([case_of(COMMAND)])) == []


ROT = "flip_bits: {target: leader(orders/0)}"


@pytest.mark.parametrize("rotten", [POSSIBLE, IMPOSSIBLE, UNKNOWN], ids=str)
def test_a_partition_whose_log_rots_is_predicted_apart(plant: Plant, rotten: Chance) -> None:
    """On a partition whose log a fault damaged, a class that a power loss can cause is possible; every other is
    unknown, never impossible."""
    asked = plant(IMPOSSIBLE, rotten=rotten)
    file = predict_case(case_of(ROT, "for: 1s"))
    assert _chances(file) == dict.fromkeys(("lost", "overwritten", "vanished", "conflict"), IMPOSSIBLE)
    lost = POSSIBLE if rotten is POSSIBLE else UNKNOWN
    assert _chances(file, "orders/0") == {
        "lost": lost, "overwritten": lost, "vanished": UNKNOWN, "conflict": UNKNOWN,
    }  # fmt: skip
    assert [scope.budget.power_losses for scope in asked] == [0, 1]
    assert any(text.startswith("orders/0: flip_bits took from its log") for text in file.not_predicted)
    again = _explored(case_of(ROT, "for: 1s"), (), (), SearchOptions(100))
    assert _chances(again, "orders/0") == {}  # it was never done


def test_what_exploration_does_not_reach_is_said_by_the_settings(plant: Plant) -> None:
    plant(IMPOSSIBLE)
    file = predict_case(case_of(KILL))
    said = {one.anomaly: one.explored for one in file.classes}
    assert {name for name, explored in said.items() if explored} == set(_chances(file))
    assert said["corrupted"] is False
    assert len(file.classes) == len(said)


@pytest.mark.parametrize(("found", "bounds"), [(UNKNOWN, 2), (IMPOSSIBLE, 1), (POSSIBLE, 1)], ids=str)
@pytest.mark.parametrize(("seen", "asks"), [((), False), (("lost",), True), (("phantom",), False)], ids=str)
def test_what_was_seen_is_looked_at_longer(
    plant: Plant,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Chance,
    bounds: int,
    seen: tuple[str, ...],
    asks: bool,
) -> None:
    plant(found)
    limits: list[int] = []

    def explored(asked: Case, _: object, __: object, options: SearchOptions) -> PredictionFile:
        limits.append(options.max_states)
        return _explored(asked, None, (), options)

    monkeypatch.setattr(prediction, "_explored", explored)
    prediction.predict_run(case_of(KILL), CaseDir(tmp_path), seen)
    assert len(limits) == (bounds if asks else 1)
    assert limits == sorted(set(limits))


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ("power_loss: broker(1)", IMPOSSIBLE),
        ("power_loss: [broker(1), broker(2)]", POSSIBLE),
        ("power_loss: rack(a)", POSSIBLE),
        ("power_loss: rack(b)", IMPOSSIBLE),
        ("kill: [broker(1), broker(2)]", IMPOSSIBLE),
    ],
)
def test_what_several_nodes_lose_at_once_one_of_them_does_not(fault: str, lost: Chance) -> None:
    """The explorer runs. Both replicas are in rack a, so a fault of several nodes can hit both."""
    racks = "brokers: 3, racks: [a, a, b], controller_racks: [b]"
    case = case_of(fault, "restart_after: 1s", replicas=2, min_insync=2, cluster=racks)
    assert _chances(predict_case(case))["lost"] is lost


def test_a_prediction_says_which_reductions_its_search_used() -> None:
    """A search without reductions gives the same answers."""
    case = case_of("kill: broker(1)", replicas=2)
    reduced, plain = predict_case(case), predict_case(case, SearchOptions(reductions=NO_REDUCTIONS))
    assert (reduced.reductions, plain.reductions) == (ALL.names, ())
    assert plain.states > reduced.states
    assert _chances(plain) == _chances(reduced)
    assert predict_case(case_of(COMMAND)).reductions is None
