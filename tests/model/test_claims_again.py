"""Tests of `ackproof claims --again`: open claims are run again, and the earlier runs stay visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.run import conclude as concluding
from ackproof.rundir.lab import ClaimJudged, ClaimsFile, ClaimVerdict

from ..audit.local import audited

FILE = """
name: quiet
backend: model
claims:
  PLAIN: {{says: Nothing is lost., holds: [{{lost: 0}}]}}
  BOTH: {{says: There is much., holds: [{{lost: 0, attempts(acked): "> {much}"}}]}}
cluster: {{brokers: 3, controllers: 1}}
topics: {{orders: {{replication_factor: 3}}}}
workload: {{producers: {{rate: 100/s, acks: all}}, duration: 1s}}
"""


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concluding.audit, "run", audited)


def asked(folder: Path, much: int, *more: str) -> tuple[int, dict[str, ClaimJudged]]:
    file = folder / "quiet.yaml"
    file.write_text(FILE.format(much=much))
    code = main_code(["claims", str(file), "--out", str(folder / "out"), *more])
    return code, {one.claim: one for one in ClaimsFile.load(folder / "out" / "claims.json").claims}


def test_only_what_is_open_is_asked_again_and_the_page_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, judged = asked(tmp_path, 10**6)
    assert (code, judged["BOTH"].verdict) == (2, ClaimVerdict.INCONCLUSIVE)
    assert (judged["PLAIN"].verdict, judged["PLAIN"].before) == (ClaimVerdict.CONFIRMED, ())
    (first,) = judged["BOTH"].before
    assert first.experiment == judged["PLAIN"].experiment != judged["BOTH"].experiment
    assert first.why.startswith("not seen with case#1: attempts(acked) > 1000000: ")
    assert "running again, as INCONCLUSIVE: BOTH\n" in capsys.readouterr().out
    page = (tmp_path / "out" / "claims.html").read_text("utf-8")
    assert "1 claim asked more than once" in page
    assert f'href="./{first.experiment}/report.html"' in page
    assert page.count("(asked before)") == 1, "what was seen then, beside what is seen now"


def test_resumed_it_is_asked_on_until_the_file_asks_something_else(tmp_path: Path) -> None:
    _, first = asked(tmp_path, 10**6, "--again", "0")
    assert first["BOTH"].before == ()
    _, second = asked(tmp_path, 10**6, "--resume", "--again", "0")
    assert len({shown.run for shown in second["BOTH"].shown if shown.holds is False}) == 2
    code, edited = asked(tmp_path, 10, "--resume")
    assert (code, edited["BOTH"].verdict) == (0, ClaimVerdict.CONFIRMED)
    assert [one.experiment for one in edited["BOTH"].before] == [
        first["BOTH"].experiment,
        second["BOTH"].experiment,
    ]
    assert edited["PLAIN"] == first["PLAIN"]
