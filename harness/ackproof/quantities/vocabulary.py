"""All quantities, and how a text becomes a question for one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ackproof.quantities import (
    availability,
    counts,
    logs,
    metrics,
    placement,
    rates,
    serving,
    states,
    times,
    viewers,
)
from ackproof.quantities.quantity import Ask, Quantity, Vocabulary, quantile_share, read_argument
from ackproof.rundir.anomalies import TABLE

OF_FAMILY: Final[Mapping[str, tuple[Quantity, ...]]] = MappingProxyType(
    {
        (module.__doc__ or "").partition("\n")[0].rstrip("."): module.QUANTITIES
        for module in (availability, times, rates, states, placement, logs, viewers, serving, metrics, counts)
    }
)
"""By what they have in common, in the words of their file."""
VOCABULARY: Final[Vocabulary] = MappingProxyType(
    {one.key: one for family in OF_FAMILY.values() for one in family}
)
"""By what they are called: `time_to(first ack)`, `isr`, `lost`."""
_COMPARED: Final = re.compile(r"([^<>=]+?)\s*([<>=].*)\Z")
_ASK: Final = re.compile(r"\s*([A-Za-z][A-Za-z_-]*)\s*(?:\(([^()]*)\))?\s*\Z")


class UnknownQuantity(ValueError):
    """A name that is none of the vocabulary's. `said`: what stands there; `valid`: what could."""

    def __init__(self, said: str, valid: list[str]) -> None:
        self.said = said
        self.valid = valid
        super().__init__(f"unknown quantity '{said[:60]}'")


def is_count(name: str) -> bool:
    """Whether this is a class of anomalies, which the audit counts."""
    return name in TABLE


def parse_ask(text: str) -> Ask:
    """Read a quantity with what it is asked of. Raises `UnknownQuantity`, or ValueError with what is wrong."""
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
        raise ValueError(f"{ask.quantity.key} lacks '{lacking[0]}'; write {ask.quantity.signature}")
    return ask


def _named(name: str, words: list[str]) -> Quantity:
    """The quantity of this name; its variant, if it has some, is the first word."""
    variants = [one for one in VOCABULARY.values() if one.name == name]
    if not variants:
        raise UnknownQuantity(name, list(dict.fromkeys(one.name for one in VOCABULARY.values())))
    chosen = next((one for one in variants if words and one.variant == words[0]), None)
    if chosen is None and name == "latency" and words and quantile_share(words[0]) is not None:
        chosen = rates.latency(words[0])
    plain = next((one for one in variants if not one.variant), None)
    if chosen is None and plain is None:
        valid = [one.key for one in variants]
        raise UnknownQuantity(f"{name}({words[0]})" if words else name, valid)
    found = chosen or plain
    assert found is not None
    return found
