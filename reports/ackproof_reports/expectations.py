"""What the experiment expected, beside what was seen. It says what is on disk; the judge has judged already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import Bound
from ackproof_reports.loading import CaseView
from ackproof_reports.wording import scalar, short_setting


@dataclass(frozen=True)
class Held:
    """One case under one bound. `count` None: not counted; `holds` None: not decidable. `seen`: what was measured, in
    words, of a quantity that is no count."""

    case: CaseView
    count: int | None
    holds: bool | None
    seen: str = ""


@dataclass(frozen=True)
class Expectation:
    """One bound of one `expect` line, and every case that it speaks of."""

    given: tuple[tuple[str, str], ...]
    anomaly: str
    bound: str
    held: tuple[Held, ...]

    @property
    def where(self) -> str:
        """`acks=all`, by the short names that a reader knows."""
        return ", ".join(f"{short_setting(name)}={value}" for name, value in self.given) or "every case"

    @property
    def met(self) -> int:
        """In how many cases it holds."""
        return sum(held.holds is True for held in self.held)


def expectations(cases: Sequence[CaseView]) -> list[Expectation]:
    """The expectations of one experiment's resolved cases, each once."""
    lines: dict[tuple[tuple[tuple[str, str], ...], str, str], list[Held]] = {}
    for case in cases:
        for expect in _list(case.resolved("experiment", "expect")):
            given = tuple((name, _text(value)) for name, value in _mapping(expect.get("given")).items())
            for anomaly, bound in expect.items():
                if anomaly == "given":
                    continue
                held = lines.setdefault((given, anomaly, _text(bound)), [])
                if _applies(given, case):
                    held.append(_held(case, anomaly, _text(bound)))
    return [
        Expectation(given, anomaly, bound, tuple(held)) for (given, anomaly, bound), held in lines.items()
    ]


def _held(case: CaseView, name: str, bound: str) -> Held:
    """What the audit counted, or what the judge measured and said of it."""
    if name in TABLE:
        count = case.counts.get(name)
        return Held(case, count, _holds(bound, count))
    for one in case.judged.expected if case.judged else ():
        if (one.quantity, one.bound) == (name, bound):
            notes = [one.why, f"timing {one.timing}" if one.timing else ""]
            note = "; ".join(filter(None, notes))
            return Held(case, None, one.holds, f"{one.seen} ({note})" if note else one.seen)
    return Held(case, None, None)


def _list(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str:
    return scalar(value) if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _applies(given: Sequence[tuple[str, str]], case: CaseView) -> bool:
    """A resolved case holds what is expected of it; only a setting that says otherwise takes an expectation away."""
    return not any(
        _named(path, name) and scalar(actual) != value
        for name, value in given
        for path, actual in case.settings.items()
    )


def _named(path: str, name: str) -> bool:
    """A setting is named by its path or by the end of it."""
    return path == name or path.endswith((f".{name}", f"[{name}]"))


def _holds(bound: str, count: int | None) -> bool | None:
    if count is None:
        return None
    try:
        return Bound.parse(bound).holds(count)
    except ValueError:
        return None  # of another version: it cannot be said
