"""`ackproof compare`: equal batches, certain differences, batches that lack a number; and their data frames."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from click.testing import CliRunner

from ackproof import api
from ackproof.base.errors import BadInput
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.repeats.demand import Statistic
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.lab import (
    ComparedBatch,
    ComparedCase,
    ComparedDifference,
    ComparedQuantity,
    ComparisonFile,
)
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict
from ackproof_lab.compare.batches import Gate, compare
from ackproof_lab.compare.command import compare as command
from ackproof_lab.compare.groups import groups_of
from ackproof_reports.comparison_pages import comparison_page
from repeated import ACK, Go, repeated

MEAN = Statistic("mean")


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    return repeated(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    with pytest.MonkeyPatch.context() as patch:
        go = repeated(tmp_path_factory.mktemp("pair"), patch)
        first, second = go("{lost: 0}", repeat=3), go("{lost: 0}", repeat=3, timeout=9000)
    return first.directory.path, second.directory.path


@pytest.fixture
def pair(done: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Two batches, the second with three times the session time-out. They are copies, which a test may change."""
    first, second = (Path(copytree(one, tmp_path / "runs" / one.name, symlinks=True)) for one in done)
    return first, second


def of(found: ComparisonFile, case: str, quantity: str, window: str = "") -> ComparedQuantity:
    (one,) = (one for one in found.cases if one.case == case)
    return next(one for one in one.quantities if (one.quantity, one.window) == (quantity, window))


def test_the_run_of_another_repeat_gives_no_number(pair: tuple[Path, Path]) -> None:
    batch = BatchFile.load(pair[0] / "batch.json")
    run, other = (pair[0] / case.run for case in batch.cases if case.case in ("acks=all#1", "acks=all#2"))
    rmtree(other)
    copytree(run, other)
    side = of(compare(pair, MEAN), "acks=all", ACK).sides[0]
    assert side is not None
    assert side.why.startswith("1 of 3 unknown: acks=all#2: ")


def test_thrice_the_timeout_is_told_apart_and_named(pair: tuple[Path, Path]) -> None:
    found = compare(pair, MEAN, Gate.parse("slower:20%"))
    assert [case.case for case in found.cases] == ["acks=1", "acks=all"]
    assert {case.verdicts for case in found.cases} == {("3 PASS", "3 PASS")}
    assert {tuple(case.settings) for case in found.cases} == {("cluster.config[broker.session.timeout.ms]",)}
    ack = of(found, "acks=all", ACK)
    (beyond,) = ack.beyond
    assert beyond is not None
    assert beyond.apart
    assert beyond.low is not None
    assert beyond.sure_low is not None
    assert beyond.low > beyond.sure_low > 1.2, "the one that holds with all others is wider"
    assert any(text.startswith(f"acks=all: {ACK}: ") for text in found.broken)
    assert not any("latency(p50) outside" in text for text in found.broken), (
        "it is no slower when nothing is wrong"
    )
    lost = of(found, "acks=all", "lost")
    assert (lost.beyond, lost.sides[0] and lost.sides[0].seen) == ((None,), "0"), "nothing beside nothing"


def test_a_batch_beside_itself_is_alike(pair: tuple[Path, Path]) -> None:
    found = compare((pair[0], pair[0]), MEAN, Gate.parse("slower:20%"))
    assert not any(
        other and other.apart for case in found.cases for one in case.quantities for other in one.beyond
    )
    assert (found.broken, found.environment) == ((), {})
    assert all(case.settings == {} for case in found.cases)


def test_twenty_runs_beside_twenty_of_the_same_settings(go: Go) -> None:
    """The batches differ only in seeds. At most one in twenty quantities differs by its interval, none for certain."""
    batches = [go("{lost: 0}", repeat=20, seed=seed, only=("acks=all",)).directory.path for seed in (7, 8)]
    (case,) = compare(batches, MEAN).cases
    held = [(one.unit, other) for one in case.quantities for other in one.beyond if other is not None]
    alone = [
        other
        for unit, other in held
        if (other.low is not None and other.low > (unit != "count"))
        or (other.high is not None and other.high < (unit != "count"))
    ]
    assert len(held) >= 40
    assert len(alone) <= len(held) / 20
    assert not any(other.apart for _, other in held)


def test_a_repeat_without_a_verdict_makes_its_case_unknown(pair: tuple[Path, Path]) -> None:
    file = BatchDir(pair[1]).batch_json
    batch = BatchFile.load(file)
    torn = batch.cases[0].model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reasons": ("it lacks",)})
    batch.model_copy(update={"cases": (torn, *batch.cases[1:])}).save(file)
    found = compare(pair, MEAN)
    ack = of(found, "acks=1", ACK)
    assert ack.beyond == (None,)
    assert ack.sides[1] is not None
    assert ack.sides[1].why == "1 of 3 unknown: acks=1#1: INCONCLUSIVE: it lacks"
    assert of(found, "acks=all", ACK).beyond != (None,)


def test_settings_that_differ_are_told_of_cases_without_a_verdict(pair: tuple[Path, Path]) -> None:
    file = BatchDir(pair[1]).batch_json
    batch = BatchFile.load(file)
    torn = tuple(one.model_copy(update={"verdict": Verdict.INCONCLUSIVE}) for one in batch.cases)
    batch.model_copy(update={"cases": torn}).save(file)
    found = compare(pair, MEAN)
    assert {tuple(case.settings) for case in found.cases} == {("cluster.config[broker.session.timeout.ms]",)}


def test_what_a_repeat_does_not_tell_is_not_left_out(pair: tuple[Path, Path]) -> None:
    """Of three repeats, only the second has a value for one quantity, and only the third for another."""

    def measure(evidence: Evidence) -> Iterator[tuple[tuple[str, str], Value]]:
        repeat = evidence.run.path.name[-1]
        if repeat == "2":
            yield (ACK, ""), Value.exactly(1)
        if repeat == "3":
            yield ("rate(produce)", ""), Value.exactly(5)

    group = groups_of(pair[0], BatchFile.load(BatchDir(pair[0]).batch_json), measure)["acks=1"]
    assert [one.high for one in group.values_of((ACK, ""))] == [math.inf, 1, math.inf]
    assert [one.high for one in group.values_of(("rate(produce)", ""))] == [math.inf, math.inf, 5]
    assert group.values_of((ACK, ""))[2].why == "acks=1#3 has no value"
    assert group.values_of(("lost", "")) == []


def made(
    low: float | None, high: float | None, quantity: str = "latency(p99)", unit: str = "s"
) -> ComparisonFile:
    batch = ComparedBatch(name="x", directory="x", verdict="PASS", cases=1)
    beyond = ComparedDifference(sure_low=low, sure_high=high)
    one = ComparedQuantity(quantity=quantity, window="", unit=unit, sides=(None, None), beyond=(beyond,))
    case = ComparedCase(case="c", verdicts=("1 PASS",) * 2, quantities=(one,))
    return ComparisonFile(batches=(batch, batch), statistic="mean", confidence=0.95, cases=(case,))


@pytest.mark.parametrize(
    ("found", "broken", "told"),
    [
        (made(1.21, 3), 1, 1),
        (made(1.19, 3), 0, 0),
        (made(0.5, 1.2), 0, 1),
        (made(1.3, None), 1, 1),
        (made(None, None), 0, 0),
        (made(0.5, 0.8, "rate(produce)", "1/s"), 1, 1),
        (made(0.8, 0.9, "rate(produce)", "1/s"), 0, 0),
        (made(1.3, None, "rate(produce)", "1/s"), 0, 1),
        (made(5, 9, "lost", "count"), 0, 0),
    ],
)
def test_slower_is_what_is_wholly_beyond(found: ComparisonFile, broken: int, told: int) -> None:
    held = Gate.parse("slower:20%").apply(found)
    assert (len(held.broken), held.told) == (broken, told)
    assert held.told + held.untold == (found.cases[0].quantities[0].unit != "count")


@pytest.mark.parametrize(("high", "said"), [(3, "1.3 to 3 times"), (None, "at least 1.3 times")])
def test_a_violation_names_the_interval_that_decides(high: float | None, said: str) -> None:
    (text,) = Gate.parse("slower:20%").apply(made(1.3, high)).broken
    assert f": x: {said} that of the first" in text


@pytest.mark.parametrize("text", ["slower", "slower:20", "slower:x%", "faster:20%", "slower:-1%"])
def test_what_is_no_gate(text: str) -> None:
    with pytest.raises(ValueError, match="expected slower:20%"):
        Gate.parse(text)


def test_the_command(pair: tuple[Path, Path], tmp_path: Path) -> None:
    page, data = tmp_path / "c.html", tmp_path / "c.json"
    words = [str(pair[0]), str(pair[1]), "--fail-on", "slower:20%", "--html", str(page), "--json", str(data)]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.return_value == 1
    assert "differs: cluster.config[broker.session.timeout.ms]: 3000 | 9000" in done.output
    assert f"slower: acks=all: {ACK}" in done.output
    assert ComparisonFile.load(data).broken
    assert "<script" not in page.read_text()
    assert f"acks=all: {ACK}" in page.read_text()
    alike = CliRunner().invoke(
        command, [str(pair[0])] * 2 + ["--fail-on", "slower:99%"], standalone_mode=False
    )
    assert alike.return_value == 0, alike.output
    assert CliRunner().invoke(command, [str(pair[0])] * 2, standalone_mode=False).return_value == 0


def lose(directory: Path, count: int) -> None:
    """Change `batch.json`: the first repeat of acks=1 has lost `count` records, and its verdict is FAIL."""
    file = BatchDir(directory).batch_json
    batch = BatchFile.load(file)
    first = batch.cases[0].model_copy(update={"verdict": Verdict.FAIL, "counts": {"lost": count, "acked": 5}})
    batch.model_copy(update={"cases": (first, *batch.cases[1:])}).save(file)


def test_a_loss_and_a_verdict_stand_before_all_else(pair: tuple[Path, Path], tmp_path: Path) -> None:
    lose(pair[1], 1287)
    page, data = tmp_path / "c.html", tmp_path / "c.json"
    words = [*map(str, pair), "--html", str(page), "--json", str(data)]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.output.splitlines()[2:4] == [
        "differs: acks=1: verdict: 3 PASS | 1 FAIL, 2 PASS",
        "differs: acks=1: lost: 0 | 1,287 in 1 of 3 repeats",
    ]
    assert "verdicts or counts differ in 1 of 2 cases" in done.output
    assert "B 1,287 in 1 of 3 repeats" in page.read_text()
    found = ComparisonFile.load(data)
    assert [case.differs for case in found.cases] == [True, False]
    assert [one.report for one in found.batches] == [str(one / "report.html") for one in pair]
    assert found.cases[0].runs[1][0] == str(
        pair[1] / BatchFile.load(BatchDir(pair[1]).batch_json).cases[0].run
    )


def test_as_many_of_more_repeats_is_no_difference(pair: tuple[Path, Path]) -> None:
    file = BatchDir(pair[1]).batch_json
    batch = BatchFile.load(file)
    batch.model_copy(update={"cases": tuple(one for one in batch.cases if one.repeat < 3)}).save(file)
    assert not any(case.differs for case in compare(pair, MEAN).cases)


def test_what_is_expected_is_compared_and_shown(go: Go) -> None:
    expected = "total_gap(produce, above 2s)"
    first = go(f"{{{expected!r}: '< 30s', lost: 0}}", repeat=1).directory.path
    done = CliRunner().invoke(command, [str(first)] * 2, standalone_mode=False)
    assert sum(line.strip().startswith(expected) for line in done.output.splitlines()) == 2, "of each case"
    found = compare([first, first], MEAN)
    assert {one.quantity for one in found.cases[0].quantities if one.expected} == {expected, "lost"}


def test_no_case_in_common_is_inconclusive_and_says_why(pair: tuple[Path, Path]) -> None:
    file = BatchDir(pair[1]).batch_json
    batch = BatchFile.load(file)
    renamed = (one.model_copy(update={"case": one.case.replace("acks", "rf")}) for one in batch.cases)
    batch.model_copy(update={"cases": tuple(renamed)}).save(file)
    done = CliRunner().invoke(command, list(map(str, pair)), standalone_mode=False)
    assert done.return_value == 2
    why = "the first batch has acks=1, acks=all; batch 2 has rf=1, rf=all"
    assert f"no case in common, so nothing is compared: {why}" in done.output
    assert why in comparison_page(compare(pair, MEAN))


def test_the_load_of_the_machine_is_no_difference(pair: tuple[Path, Path]) -> None:
    for directory, load in zip(pair, ("1.0", "9.0"), strict=True):
        for path in directory.glob("*/case.json"):
            case = CaseFile.load(path)
            case.environment.update(
                {"load average": load, "memory": f"8 GiB, {load} GiB free", "kernel": load}
            )
            case.save(path)
    assert set(compare(pair, MEAN).environment) == {"kernel"}


def test_one_run_each_tells_nothing(go: Go) -> None:
    first = go("{lost: 0}", repeat=1).directory.path
    words = [str(first), str(first), "--fail-on", "slower:20%"]
    assert CliRunner().invoke(command, words, standalone_mode=False).return_value == 2


def test_bad_input(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    with pytest.raises(BadInput, match="two batches or more"):
        compare([pair[0]], MEAN)
    with pytest.raises(BadInput, match=r"batch\.json"):
        compare([pair[0], tmp_path], MEAN)
    for words, said in ((["--statistic", "maen"], "did you mean 'mean'"), (["--fail-on", "x"], "slower:20%")):
        error = CliRunner().invoke(command, [*map(str, pair), *words]).exception
        assert isinstance(error, BadInput)
        assert said in str(error)


def test_the_page_escapes_what_it_is_told() -> None:
    found = made(1, 2).model_copy(update={"environment": {"<b>": ("<script>x</script>", "")}})
    assert "<script" not in comparison_page(found)
    assert "&lt;script&gt;" in comparison_page(found)


def test_frames_of_a_batch(pair: tuple[Path, Path]) -> None:
    batch = api.open_batch(pair[0])
    frame = batch.quantities()
    assert list(frame.columns[:3]) == ["case", "repeat", "quantity"]
    ack = frame[(frame.quantity == ACK) & (frame.partition == "")]
    assert list(zip(ack.case, ack.repeat, strict=True)) == [
        (case, number) for case in ("acks=1", "acks=all") for number in (1, 2, 3)
    ]
    assert not any(math.isinf(one) for one in ack.high)
    alone = api.open_run(pair[0] / batch.document.cases[0].run).quantities()
    assert (
        frame[(frame.case == "acks=1") & (frame.repeat == 1)].iloc[:, 2:].reset_index(drop=True).equals(alone)
    )
    events = batch.timeline()
    assert list(events.columns[:3]) == ["case", "repeat", "t_ns"]
    assert (events.kind == "end").sum() == 6
    assert events[events.kind == "fault-asked"].detail.iloc[0]["kind"] == "kill"
    json.dumps(events.detail.iloc[0])
