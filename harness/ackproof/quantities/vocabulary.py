"""The closed list of quantities, the parser of questions about them, and the page `docs/quantities.md`.

`python -m ackproof.quantities.vocabulary > docs/quantities.md` writes the page; a test compares both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Final

from ackproof.base.advice import Advice
from ackproof.quantities import availability, groups, logs, metrics, rates, serving, states, times, viewers
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import (
    Ask,
    Quantity,
    Unknown,
    Value,
    Witness,
    quantile_share,
    read_argument,
)
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.metrics import METRICS


def _count_findings(evidence: Evidence, ask: Ask, _: Window) -> Value:
    counts = {} if evidence.audit is None else evidence.audit.counts
    if ask.quantity.name not in counts:
        raise Unknown("it was not counted")
    return Value.exactly(counts[ask.quantity.name])


_FINDINGS: Final = tuple(
    Quantity(
        name=row.name.value,
        unit=Unit.COUNT,
        definition=row.wording,
        source="audit.json",
        unknown="Unknown where no audit counted it.",
        takes_time=False,
        measure=_count_findings,
    )
    for row in TABLE.values()
)
OF_FAMILY: Final[Mapping[str, tuple[Quantity, ...]]] = MappingProxyType(
    {
        "Availability: the longest time without a successful request of clients": availability.QUANTITIES,
        "Times from the beginning of a fault until something was seen": times.QUANTITIES,
        "Rates, latencies, outcomes and errors of produce attempts": rates.QUANTITIES,
        "Partition states over time, and elections": states.STATES,
        "Replica placement over brokers and racks": states.PLACEMENT,
        "Replicas' logs on disk at the end of the run": logs.QUANTITIES,
        "Cluster views: metadata as each broker (and ZooKeeper) describes it": viewers.QUANTITIES,
        "Requests that each broker served, and brokers that live readers fetched from": serving.QUANTITIES,
        "Consumer groups": groups.QUANTITIES,
        "Metrics of the nodes, as an alert would have seen them": metrics.QUANTITIES,
        "Findings of the audit, one quantity per anomaly class": _FINDINGS,
    }
)
"""Quantities by family, under the heading that docs/quantities.md gives to the family."""
VOCABULARY: Final[Mapping[str, Quantity]] = MappingProxyType(
    {one.key: one for family in OF_FAMILY.values() for one in family}
)
"""Quantities by their key: `time_to(first ack)`, `isr`, `lost`."""
_COMPARED: Final = re.compile(r"([^<>=]+?)\s*([<>=].*)\Z")
_ASK: Final = re.compile(r"\s*([A-Za-z][A-Za-z_-]*)\s*(?:\(([^()]*)\))?\s*\Z")


class UnknownQuantity(ValueError):
    """Raised for a name that is not in the list of quantities. `said`: the unknown name, as written. `valid`: the names
    of all quantities or, if only the variant is unknown, the keys of all its variants."""

    def __init__(self, said: str, valid: list[str]) -> None:
        self.said = said
        self.valid = valid
        super().__init__(f"unknown quantity '{said[:60]}'")


def is_count(name: str) -> bool:
    """Return True if `name` is an anomaly class, which the audit counts, and not a measured quantity."""
    return name in TABLE


def parse_ask(text: str) -> Ask:
    """Parse a question: a quantity, in parentheses its variant and further arguments, such as `time_to(first ack, fault
    1, orders/0)`.

    Raises `UnknownQuantity` for a name that is not in the vocabulary, and ValueError for text of another form and for
    wrong arguments.
    """
    match = _ASK.match(text)
    if match is None:
        raise ValueError(
            f"expected a quantity such as lost or time_to(first ack, fault 1), not '{text[:60]}'"
        )
    name, inside = match[1], match[2]
    words = [" ".join(word.split()) for word in inside.split(",")] if inside is not None else []
    if "" in words:
        raise ValueError(f"there is nothing between two of the commas, or parentheses, of '{text[:60]}'")
    if words and (compared := _COMPARED.match(words[0])):
        words[:1] = compared.groups()
    ask = Ask(_named(name, words))
    for word in words[1:] if ask.quantity.variant else words:
        ask = read_argument(ask, word)
    lacking = [str(one) for one in ask.quantity.required if not ask.has(one)]
    if lacking:
        raise ValueError(
            Advice(f"{ask.quantity.key} lacks '{lacking[0]}'", f"write {ask.quantity.signature}")
        )
    return ask


def _named(name: str, words: list[str]) -> Quantity:
    """Return the quantity of this name; if it has variants, the one that the first of `words` names. `latency` has any
    quantile as a variant. Raises `UnknownQuantity` for another name or variant."""
    variants = [one for one in VOCABULARY.values() if one.name == name]
    if not variants:
        raise UnknownQuantity(name, list(dict.fromkeys(one.name for one in VOCABULARY.values())))
    found = next((one for one in variants if words and one.variant == words[0]), None)
    if found is None and name == "latency" and words and quantile_share(words[0]) is not None:
        return rates.latency(words[0])
    found = found or next((one for one in variants if not one.variant), None)
    if found is None:
        raise UnknownQuantity(f"{name}({words[0]})" if words else name, [one.key for one in variants])
    return found


def markdown() -> str:
    """Return the text of docs/quantities.md: one table for each family of quantities, and a table of the metrics."""
    lines = [
        "# Quantities",
        "",
        "Generated by `python -m ackproof.quantities.vocabulary`; a test holds both equal. Each is measured from the",
        "files of a run, may be [expected](experiments.md#expectations), is a row of `open_run(path).quantities()`.",
        "`t/p` is a partition such as `orders/0`, `N` the number of a fault or node, `D` a duration such as `1s`,",
        "`C` a code, `G` a consumer group, `> X` a comparison; what stands in brackets may be left out. A number is",
        "not always known exactly: what the end of a run cut has no upper bound, what samples show lies between two of",
        "them.",
    ]
    for family, quantities in OF_FAMILY.items():
        lines += ["", f"## {family}", ""]
        lines += [
            "| quantity | unit | definition | from | unknown or cut | windows |",
            "|---|---|---|---|---|---|",
        ]
        # one row for all that differ only in the metric, or in the quantile
        alike = [replace(one, variant=one.stands_for) if one.stands_for else one for one in quantities]
        for _, group in groupby(alike, key=lambda one: one.key):
            one = next(group)
            windows = "yes" if one.windows else "no"
            lines.append(
                f"| `{one.signature}` | {one.unit} | {one.definition} | {one.source} | {one.unknown} | {windows} |"
            )
        if any(one.needs is Witness.METRICS for one in quantities):
            lines += ["", "`M` is one of these, scraped once a second with `observe: {metrics: true}`:", ""]
            lines += ["| `M` | shape | of several nodes | means | in JMX |", "|---|---|---|---|---|"]
            lines += [
                f"| `{one.name}` | {one.shape} | {'greatest' if one.greatest else 'sum'} | {one.means} "
                f"| `{one.bean}`, {one.attribute} |"
                for one in METRICS.values()
            ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(markdown())
