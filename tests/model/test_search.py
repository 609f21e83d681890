"""Tests of the search, on a model whose answers can be computed by hand."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof_reference.explore.model import Action, Group, Model, Move
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Progress, Search, load, save
from ackproof_reference.explore.story import counterexample_lines, format_value
from ackproof_reference.explore.world import world
from ackproof_reference.rules import Rules, without


def counters(top: int, bad: int = -1) -> Model:
    """Return a model of two counters that rise to `top` by one or two, with the invariant that the first never is
    `bad`."""

    def climb(value: int) -> Iterator[Move]:
        for more in (1, 2):
            if value + more <= top:
                yield Action("counter", f"climbs by {more}"), (value + more,)

    def level(first: int, second: int) -> Iterator[Move]:
        if first == second:
            yield Action("both", "start anew"), (0, 0)

    def check(value: int) -> Iterator[tuple[str, str]]:
        if value == bad:
            yield "reached", f"the first counter is at {value}"

    groups = [Group("first", (0,), climb, check), Group("second", (1,), climb), Group("both", (0, 1), level)]
    return Model(("first", "second"), (0, 0), groups)


def test_every_state_is_seen_once() -> None:
    search = Search(counters(9))
    search.run()
    assert search.exhausted
    assert len(search.seen) == 100
    assert {search.cells.row(state) for state in search.seen} == {
        (i, j) for i in range(10) for j in range(10)
    }


def test_the_way_to_a_finding_is_the_shortest() -> None:
    search = Search(counters(9, bad=7))
    search.run()
    assert search.findings["reached"].depth == 4
    assert [line.action.text for line in search.way_to(search.findings["reached"].state)] in (
        [["climbs by 1" if place == one else "climbs by 2" for place in range(4)] for one in range(4)]
    )


def test_a_finding_in_the_first_state_has_no_way() -> None:
    search = Search(counters(3, bad=0))
    search.run()
    assert search.way_to(search.findings["reached"].state) == []


def test_findings_of_other_classes_do_not_stop_it() -> None:
    search = Search(counters(9, bad=7), frozenset({"something else"}))
    search.run()
    assert search.exhausted
    assert not search.satisfied
    assert search.findings["reached"].depth == 4


def test_cells_with_many_values_are_widened_on_the_way() -> None:
    """The cell gets more values than twelve bits can number: states are repacked, and counterexamples stay right."""
    model = counters(9000, bad=8999)
    single = Search(replace(model, groups=model.groups[:1]))
    single.run()
    assert single.findings["reached"].depth == 4500
    assert len(single.way_to(single.findings["reached"].state)) == 4500
    assert single.cells.widths[0] == 16
    assert single.cells.row(single.findings["reached"].state) == (8999, 0)


LIMITED = Scope(Rules(min_insync=2), brokers=2, records=2, budget=Budget(kills=1, cuts=1))


@pytest.fixture(scope="module")
def whole() -> Search:
    search = Search(world(LIMITED))
    search.run()
    return search


@pytest.mark.parametrize("limit", [{"max_states": 1_500}, {"max_bytes": 600_000}, {"max_seconds": 0.0}])
def test_a_limit_leaves_the_rest_for_later(limit: dict[str, float], whole: Search, tmp_path: Path) -> None:
    part = Search(world(LIMITED))
    part.run(**limit)  # type: ignore[arg-type]
    assert not part.exhausted
    save(part, tmp_path / "search", "this")
    again = load(world(LIMITED), tmp_path / "search", "this")
    assert list(again.seen.items()) == list(part.seen.items())
    again.run()
    assert again.exhausted
    assert len(again.seen) == len(whole.seen)
    assert again.progress.depth == whole.progress.depth


def test_a_resumed_search_finds_the_same_story(tmp_path: Path) -> None:
    rules = without(Rules(min_insync=2), "eligible leader replicas")
    scope = Scope(rules, brokers=2, budget=Budget(cuts=1, power_losses=1))
    whole, part = Search(world(scope), frozenset({"lost"})), Search(world(scope), frozenset({"lost"}))
    whole.run()
    part.run(max_states=10_000)
    save(part, tmp_path / "search", "this")
    again = load(world(scope), tmp_path / "search", "this")
    again.run()
    assert [*counterexample_lines(again.findings["lost"], again.way_to(again.findings["lost"].state))] == [
        *counterexample_lines(whole.findings["lost"], whole.way_to(whole.findings["lost"].state))
    ]


def test_a_search_of_another_model_is_refused(tmp_path: Path) -> None:
    part = Search(counters(9))
    part.run(max_states=1)
    save(part, tmp_path / "search", "this")
    with pytest.raises(ValueError, match="another world"):
        load(counters(9), tmp_path / "search", "that")


def test_the_collector_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    Search(counters(3)).run()
    assert gc.isenabled()


def test_progress_is_shown_on_the_way() -> None:
    seen: list[Progress] = []
    scope = Scope(Rules(), brokers=2, budget=Budget(kills=1))
    Search(world(scope)).run(watch=lambda progress: seen.append(replace(progress)))
    assert len(seen) > 10
    assert [p.states for p in seen] == sorted(p.states for p in seen)
    assert seen[-1].rate > 0


def test_a_story_shows_what_changed() -> None:
    scope = Scope(Rules(), brokers=2, acks=1, settled=True, budget=Budget(hand_overs=1, kills=1))
    search = Search(world(scope), frozenset({"lost"}))
    search.run()
    lost = search.findings["lost"]
    way = search.way_to(lost.state)
    lines = [*counterexample_lines(lost, way)]
    assert lines[-1].startswith("  ✗  lost: acknowledged record 0 is not in the log of the leader")
    changed = [f"{name}: {format_value(after)}" for line in way for name, _, after in line.changed]
    assert "log of broker 1: [0:e0#0] high watermark 0, flushed 0" in changed
    assert any("leads epoch 1 from 0" in text for text in changed)


def test_the_readmes_example_runs_and_its_names_exist(capsys: pytest.CaptureFixture[str]) -> None:
    import ackproof_reference

    folder = Path(ackproof_reference.__file__).parent
    text = (folder / "README.md").read_text("utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    exec(example[1], {})
    assert capsys.readouterr().out.startswith("possible\n")
    for file, name in re.findall(r"`(\w+\.py)`, `(\w+)`", text):
        assert f"{name}" in (folder / file).read_text("utf-8"), (file, name)
    for file in re.findall(r"`((?:explore/)?\w+\.py)`", text):
        assert (folder / file).exists(), file
