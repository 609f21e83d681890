"""Planted bugs (`make planted`): their table, the outcome of runs, repeated measurement, the page, and the problems of
a night.

The runs are fakes: a function answers in place of `ackproof run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ackproof.experiment.kafka import KafkaBuild
from ackproof.plan import cases, load
from ackproof.rundir.documents import JudgedOpinion, VerdictFile
from ackproof.rundir.outcome import Verdict
from planted import results, run
from planted.batches import CONTROL, derive_experiment, run_batch
from planted.bugs import BUGS, FOLDER, Bug, Sees
from planted.page import PAGE, write_page
from planted.results import Measured, Outcome, Seen, Store, classify, read_measured, see_run
from planted.run import choose_bugs, find_regressions, measure
from planted.why import WHY

PASS = Seen(verdict=Verdict.PASS)
FOUND = Seen(verdict=Verdict.FAIL, breaks=("lost",), bitten=True)
BUG = next(bug for bug in BUGS if bug.name == "batch-lost")


def test_the_table_names_every_rule_file_once() -> None:
    assert len(BUGS) >= 60 and len({bug.area for bug in BUGS}) >= 10
    assert sorted(bug.name for bug in BUGS) == sorted(file.stem for file in (FOLDER / "rules").iterdir())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_says_when_it_bites_and_has_one_case(bug: Bug) -> None:
    rules = bug.rules.read_text(encoding="utf-8")
    assert f'(!flag("{bug.name}") || traceln("BITE {bug.name}"))\nDO ' in rules  # last of its condition
    assert (bug.sees is Sees.NOBODY) == (not bug.finds) and bug.promise
    assert bug.file.exists()


def test_the_experiments_are_valid_with_a_case_for_the_release_and_one_for_each_bug(tmp_path: Path) -> None:
    for bug in {bug.control: bug for bug in BUGS}.values():
        file = tmp_path / "derived.yaml"
        experiment, ids = derive_experiment([bug], control=True)
        file.write_text(json.dumps(experiment), encoding="utf-8")
        chosen = (case for case in cases(load(file)) if case.id.rpartition("#")[0] in ids)
        release, planted = (case.experiment.cluster.kafka for case in chosen)
        assert release == KafkaBuild(bug.release), bug
        assert planted.label == bug.name and planted.patch == str(bug.rules) and planted.has_rules


def test_a_case_that_names_no_value_of_an_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"names 0 values of workload\.producers"):
        derive_experiment([replace(BUG, case=("other",))], control=False)


@pytest.mark.parametrize(
    ("control", "planted", "outcome"),
    [
        (PASS, FOUND, Outcome.FOUND),
        (PASS, FOUND.model_copy(update={"breaks": ("check:logs", "duplicate")}), Outcome.FOUND),
        (PASS, FOUND.model_copy(update={"breaks": ("duplicate",)}), Outcome.BY_ACCIDENT),
        (PASS, FOUND.model_copy(update={"verdict": Verdict.INCONCLUSIVE}), Outcome.INCONCLUSIVE),
        (PASS, FOUND.model_copy(update={"verdict": Verdict.PASS}), Outcome.MISSED),
        (PASS, FOUND.model_copy(update={"bitten": False}), Outcome.NOT_REACHED),
        (PASS, Seen(verdict=None), Outcome.NO_VERDICT),
        (FOUND, FOUND, Outcome.NO_CONTROL),
        (Seen(verdict=None), FOUND, Outcome.NO_CONTROL),
    ],
)
def test_outcomes(control: Seen, planted: Seen, outcome: Outcome) -> None:
    assert classify(BUG, control, planted) is outcome


def test_outcomes_of_a_bug_that_nobody_can_see() -> None:
    bug = replace(BUG, sees=Sees.NOBODY, finds=())
    assert classify(bug, PASS, FOUND.model_copy(update={"verdict": Verdict.PASS})) is Outcome.EQUIVALENT
    assert classify(bug, PASS, FOUND) is Outcome.BY_ACCIDENT


def test_a_run_is_read(tmp_path: Path) -> None:
    opinions = [
        JudgedOpinion(check="classes", kind="breaks", subject="lost", text="a"),
        JudgedOpinion(check="acks in isr", kind="breaks", text="b"),
        JudgedOpinion(check="logs", kind="agrees", text="c"),
    ]
    VerdictFile(verdict=Verdict.FAIL, reasons=("a",), opinions=tuple(opinions)).save(
        tmp_path / "verdict.json"
    )
    for node, text in (("1", "BITE other\n"), ("2", "what it says\nBITE one\n")):
        (tmp_path / "nodes" / node).mkdir(parents=True)
        (tmp_path / "nodes" / node / "stdout.log").write_text(text)
    seen = see_run(tmp_path, "one")
    assert (seen.breaks, seen.bitten) == (("lost", "check:acks-in-isr"), True)
    assert not see_run(tmp_path, "on").bitten and not see_run(tmp_path, CONTROL).bitten


@dataclass
class FakeRuns:
    """Fake of `ackproof run`: returns the results in `answers` (a bug that is not in it counts as found), and records
    in `asked` the bugs of each call."""

    answers: Mapping[str, Seen] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, bugs: Sequence[Bug], folder: Path, control: bool) -> Mapping[str, Seen]:
        names = [*([CONTROL] if control else []), *(bug.name for bug in bugs)]
        self.asked.append(names)
        return {CONTROL: PASS, **{bug.name: FOUND for bug in bugs}, **self.answers}


def _own(folder: Path, count: int) -> list[Bug]:
    """Return this number of bugs, `bug-0`, `bug-1`, …, and make the folder `rules` below `folder`."""
    bugs = []
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        bug = replace(BUG, name=f"bug-{number}")
        bugs.append(bug)
    return bugs


@pytest.fixture
def own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Byteman rule for each of ten bugs, which a test may change."""
    folder = tmp_path / "rules"
    folder.mkdir()
    monkeypatch.setattr(Bug, "rules", property(lambda bug: folder / f"{bug.name}.btm"))
    for number in range(10):
        (folder / f"bug-{number}.btm").write_text(f"RULE {number}")
    return folder


def test_nothing_is_measured_twice_until_a_rule_changes(own_rules: Path, tmp_path: Path) -> None:
    bugs, fake = _own(tmp_path / "own", 10), FakeRuns()
    store = Store(tmp_path / "out", "product")
    assert [result.outcome for result in measure(bugs, store, fake)] == [Outcome.FOUND] * 10
    first, second = [bug.name for bug in bugs[:8]], [bug.name for bug in bugs[8:]]
    assert fake.asked == [[CONTROL, *first], second]  # one control for both
    assert len(list(measure(bugs, store, fake))) == 10 and len(fake.asked) == 2
    (own_rules / "bug-3.btm").write_text("RULE another")
    assert len(list(measure(bugs, store, fake))) == 10
    assert fake.asked[2:] == [["bug-3"]]


def test_another_product_is_measured_again_unless_any_will_do(own_rules: Path, tmp_path: Path) -> None:
    bugs, fake = _own(tmp_path / "own", 1), FakeRuns()
    list(measure(bugs, Store(tmp_path / "out", "before"), fake))
    list(measure(bugs, Store(tmp_path / "out", "after", any_product=True), fake))
    assert len(fake.asked) == 1
    list(measure(bugs, Store(tmp_path / "out", "after"), fake))
    assert fake.asked[1:] == [[CONTROL, "bug-0"]]


def test_a_control_that_is_no_pass_and_a_run_without_a_verdict_are_repeated(
    own_rules: Path, tmp_path: Path
) -> None:
    (bug,), store = _own(tmp_path / "own", 1), Store(tmp_path / "out", "product")
    (result,) = measure([bug], store, FakeRuns({CONTROL: FOUND}))
    assert result.outcome is Outcome.NO_CONTROL
    fake = FakeRuns({"bug-0": Seen(verdict=None)})
    (result,) = measure([bug], store, fake)
    assert result.outcome is Outcome.NO_VERDICT and fake.asked == [[CONTROL, "bug-0"]]
    (result,) = measure([bug], store, fake := FakeRuns())
    assert result.outcome is Outcome.FOUND and fake.asked == [["bug-0"]]


def test_another_table_needs_no_run(own_rules: Path, tmp_path: Path) -> None:
    (bug,), store = _own(tmp_path / "own", 1), Store(tmp_path / "out", "product")
    list(measure([bug], store, FakeRuns()))
    (result,) = measure([replace(bug, finds=("duplicate",))], store, FakeRuns())
    assert result.outcome is Outcome.BY_ACCIDENT


def test_the_run_of_a_found_bug_is_not_kept(own_rules: Path, tmp_path: Path) -> None:
    bugs, store = _own(tmp_path / "own", 2), Store(tmp_path / "out", "product")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    seen = {
        "bug-0": FOUND.model_copy(update={"run": str(tmp_path / "a")}),
        "bug-1": Seen(verdict=Verdict.PASS, bitten=True, run=str(tmp_path / "b")),
    }
    list(measure(bugs, store, FakeRuns(seen)))
    assert not (tmp_path / "a").exists() and (tmp_path / "b").exists()


def test_shards_have_each_bug_once_and_keep_the_bugs_of_a_case_together() -> None:
    shards = [choose_bugs("*", index, 7) for index in range(1, 8)]
    assert sorted(bug.name for shard in shards for bug in shard) == sorted(bug.name for bug in BUGS)
    homes = [(bug.control, number) for number, shard in enumerate(shards) for bug in shard]
    assert len({control for control, _ in homes}) == len(set(homes))


@pytest.mark.parametrize(
    ("words", "said"), [(["--shard", "3/2"], "shards 1 to 2"), (["--only", "no such"], "no bug fits")]
)
def test_wrong_usage(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--out", str(tmp_path), *words]) == 254
    assert said in capsys.readouterr().err


def test_a_bug_that_is_not_found_any_more_fails_the_command(
    own_rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bugs = _own(tmp_path / "own", 2)
    rows = {bug.name: Measured(outcome=Outcome.FOUND, verdict=Verdict.FAIL, breaks=("lost",)) for bug in bugs}
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({name: row.model_dump(mode="json") for name, row in rows.items()}))
    monkeypatch.setattr(results, "MEASURED", measured)
    monkeypatch.setattr(run, "BUGS", tuple(bugs))
    monkeypatch.setattr(run, "PAGE", tmp_path / "page.md")
    answers: dict[str, Seen] = {}

    def fake(
        batch: Sequence[Bug], folder: Path, *, control: bool, before: Sequence[str]
    ) -> Mapping[str, Seen]:
        assert list(before) == ["nice", "-n", "5"]
        return FakeRuns(answers)(batch, folder, control)

    monkeypatch.setattr(run, "run_batch", fake)
    words = ["--before", "nice -n 5", "--update"]
    assert run.main(["--out", str(tmp_path / "one"), *words]) == 0
    answers["bug-1"] = Seen(verdict=Verdict.PASS, bitten=True)
    assert run.main(["--out", str(tmp_path / "two"), *words]) == 1
    assert "not found any more: bug-1: missed" in capsys.readouterr().err
    assert read_measured()["bug-1"].outcome is Outcome.MISSED
    assert "| **missed** |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert run.main(["--out", str(tmp_path / "two"), *words]) == 0  # it is recorded as missed now


def test_only_bugs_that_were_found_can_be_lost(own_rules: Path, tmp_path: Path) -> None:
    (bug,), store = _own(tmp_path / "own", 1), Store(tmp_path / "out", "product")
    missed = list(measure([bug], store, FakeRuns({"bug-0": Seen(verdict=Verdict.PASS, bitten=True)})))
    found = {"bug-0": Measured(outcome=Outcome.FOUND, verdict=Verdict.FAIL)}
    assert find_regressions(missed, found) and not find_regressions(missed, {})
    inconclusive = {"bug-0": Measured(outcome=Outcome.INCONCLUSIVE, verdict=Verdict.INCONCLUSIVE)}
    assert not find_regressions(missed, inconclusive)


def test_the_command_of_a_batch(tmp_path: Path) -> None:
    """If the command in front of `ackproof` does nothing, there is no batch and so no result."""
    assert run_batch([BUG], tmp_path / "batch", control=True, before=["true"]) == {}
    derived = json.loads((tmp_path / "batch" / "calm.yaml").read_text(encoding="utf-8"))
    assert [type(build) for build in derived["matrix"]["cluster.kafka"]] == [str, dict]


def test_the_page_counts_and_says_why() -> None:
    bugs = [
        BUG,
        replace(BUG, name="second"),
        replace(BUG, name="third", area="other"),
        replace(BUG, name="fourth", area="other", sees=Sees.NOBODY, finds=()),
    ]
    measured = {
        BUG.name: Measured(outcome=Outcome.FOUND, verdict=Verdict.FAIL, breaks=("duplicate", "lost")),
        "second": Measured(outcome=Outcome.MISSED, verdict=Verdict.PASS),
        "fourth": Measured(outcome=Outcome.EQUIVALENT, verdict=Verdict.PASS),
    }
    text = write_page(bugs, measured, {"second": "Nothing reads it."})
    assert "| area | bugs | found | missed | equivalent |" in text
    assert f"| {BUG.area} | 2 | 1 | 1 |  |" in text and "| **all** | 4 | 1 | 1 | 1 |" in text
    assert "Of 2 measured bugs whose effect clients or disks can see, 1 are found (50 %)." in text
    assert "| found: `lost` |" in text and "| not measured |" in text and "| equivalent |" in text
    assert text.endswith("## Why some are not found\n\n* `second`: Nothing reads it.\n")


def test_the_page_is_made_of_its_sources() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(BUGS, read_measured(), WHY)


def test_each_bug_that_is_not_found_has_a_sentence_why() -> None:
    seen = {bug.name for bug in BUGS if bug.sees is not Sees.NOBODY}
    measured = read_measured()
    unfound = {name for name, row in measured.items() if row.outcome is not Outcome.FOUND and name in seen}
    assert WHY.keys() == unfound
    assert measured.keys() <= {bug.name for bug in BUGS}
