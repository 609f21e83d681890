"""Guarantees of client libraries: after which errors they resend a record, and which anomalies they rule out.

Each library is a folder of `ackproof/clients`. Its `guarantees.txt` contains its default time-outs and these tables:

* for each error of a produce request, whether the library resends the record, and whether it may have been appended;
* what a producer's settings promise about its records; each row names its source in the library and the attack by which
  it was tested. A row that an attack refuted forbids nothing;
* how its consumers commit and its transactions begin (`Fact`), and what its clients cannot do (`Use`).

No other module knows how a library behaves: outcomes of attempts, forbidden classes, promises of groups, quantities,
bounds of recovery and refusals of a file ask these tables. `python -m ackproof.rundir.guarantees` prints
`docs/client-libraries.md`; a test compares both.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ackproof.rundir.outcome import Outcome

LIBRDKAFKA: Final = "librdkafka"
_ANY: Final = "any"


class Resend(StrEnum):
    """Action of a client library on a batch after an error: whether it sends the batch again, and whether that counts
    as a retry."""

    NEVER = "no"
    TAKEN_BACK = "no: the producer takes the record back"
    """Never; the producer itself gives the record up, as with an aborted transaction, and waits for no outcome."""
    AS_RETRY = "as a retry"
    UNCOUNTED = "yes, and does not count it as a retry"


class Appended(StrEnum):
    """Condition under which a broker may have appended a batch although it answered with an error."""

    NEVER = "no"
    BY_ACKS_ALL = "with acks=all"
    """It may have appended the batch if the request had acks=all."""
    PERHAPS = "yes"
    """It may have appended the batch with any acks."""


class ErrorRow(NamedTuple):
    """Behaviour of a client library after one error. `code`: below 0 it is the library's own code, else Kafka's error
    code.

    `resend`: whether the library sends the batch again. `appended`: whether a broker may have appended the batch
    although it answered with this error.
    """

    code: int
    name: str
    resend: Resend
    appended: Appended
    why: str
    """When Kafka or the library gives this error, and so why the batch can or cannot have been appended."""

    @property
    def definite(self) -> bool:
        """True if a record that was sent once and got this error was certainly never appended, so no reader
        can get it.
        """
        return self.appended is Appended.NEVER and self.resend is not Resend.UNCOUNTED


class Excuse(StrEnum):
    """Reason why single records may break a guarantee of a library. The value continues a sentence about these records,
    which begins with their number, such as `3 were appended in one leader epoch and …`."""

    NEW_LEADER = (
        "were appended in one leader epoch and again in a later one: the client sends a record again when its leader "
        "has changed, and does not count that as a retry"
    )
    SENT_AGAIN = (
        "were refused once and sent again after later ones: the client does not count that as a retry when "
        "the leader has changed, or when the request had not left the client"
    )
    PRODUCER_EPOCH = (
        "were sent again by the client in a new producer epoch, where no broker can detect copies"
    )
    FORGOTTEN_ID = "were appended when their leader may have forgotten the producer id"


class Holds(StrEnum):
    """Result of the experiment that tried to break a guarantee. YES: it held. EXCEPT: it broke only for reasons that
    the row lists (`Excuse`). NO: the library promises nothing for these settings, attacked or not."""

    YES = "yes"
    EXCEPT = "with exceptions"
    NO = "never promised"
    REFUTED = "refuted"


class Guarantee(NamedTuple):
    """A row of a library's table: whether producers with these settings never show an anomaly class.

    `idempotence`: on or off. `retries`: 0, > 0 or any. `acks`: the values that the row is about. `in_flight`:
    number of requests in flight, or any. `holds`: the result of the `attack`, an experiment that tried to
    break it. `words`: the promise, or why there is none. `source`: where the library's code or manual shows it.
    `excuses`: reasons for which single records may break it.
    """

    anomaly: str
    idempotence: str
    retries: str
    acks: tuple[str, ...]
    in_flight: str
    holds: Holds
    words: str
    source: str
    attack: str
    excuses: tuple[Excuse, ...]

    def covers(self, anomaly: str, idempotence: bool, retries: bool, acks: str) -> bool:
        """Return True if the row applies to this anomaly class and to producers with these settings. `retries`: True if
        retries are possible. Always False for a row that limits the requests in flight."""
        return (
            (self.anomaly, self.in_flight) == (anomaly, _ANY)
            and self.idempotence == ("on" if idempotence else "off")
            and self.retries in (_ANY, "> 0" if retries else "0")
            and bool({_ANY, acks} & set(self.acks))
        )


class Fact(StrEnum):
    """A fact about the clients of a library, by its name in `guarantees.txt`."""

    REQUEST_TIMEOUT = "setting that bounds the wait for any answer"
    SINGLE_COMMIT = "age below which a live reader's OffsetCommit was sent only once"
    """`never sent again`, `not known`, or a time in ms such as `80 ms`."""
    COMMIT_BACKOFF = "settings that change this age"
    """An experiment that gives one of them leaves `SINGLE_COMMIT` unknown."""
    AUTO_COMMIT = "an automatic commit covers"
    """An `AutoCommit`."""
    STABLE_OFFSETS = "isolation at which members wait for open transactions"
    """`any`, or `read_committed`: OffsetFetch asks for stable offsets."""
    TRANSACTION_EPOCH = "first release with a producer epoch per transaction"
    """`none`, or a release (KIP-890)."""


class AutoCommit(StrEnum):
    """Records that a library's automatic commit covers."""

    AT_DELIVERY = "all records that the application has got"
    AT_POLL = "all records of earlier polls"
    UNKNOWN = "not known"


class Use(StrEnum):
    """A use of clients that some libraries lack (`Library.cannot`). The value is its name in `guarantees.txt`."""

    MODEL = "run on `backend: model`"
    SOAK = "run in a soak"
    BROKERS = "read with `observe.brokers`"
    IDENTITY = "write identities outside of the value"


class Library(NamedTuple):
    """The default time-outs, errors and guarantees of one client library, and facts about its clients."""

    title: str
    timeouts_ms: Mapping[str, int]
    """Default of each time-out by the name of its setting, used where an experiment does not set it."""
    errors: tuple[ErrorRow, ...]
    guarantees: tuple[Guarantee, ...]
    facts: Mapping[Fact, str]
    sources: Mapping[Fact, str]
    """Place in the library's source code or manual from which each fact is known."""
    cannot: Mapping[str, str]
    """Use that its clients lack (a `Use`, or another text for the page) → reason."""

    def guarantee(self, anomaly: str, *, idempotence: bool, retries: bool, acks: str) -> Guarantee:
        """Return the first guarantee on this anomaly class for producers with these settings and any number of requests
        in flight.

        `retries`: True if retries are possible. Refuted rows do not count. Raises KeyError if there is no such
        guarantee.
        """
        for row in self.guarantees:
            if row.holds is not Holds.REFUTED and row.covers(anomaly, idempotence, retries, acks):
                return row
        raise KeyError(anomaly)

    def single_commit_ns(self, config: Collection[str]) -> float:
        """Return the age in ns below which a live reader's commit cannot have been sent twice; 0: not known, infinite:
        it never is. `config`: names of the settings that the experiment gives to its readers."""
        if {*self.facts[Fact.COMMIT_BACKOFF].split(", ")} & {*config}:
            return 0.0
        age = self.facts[Fact.SINGLE_COMMIT]
        words = {"never sent again": math.inf, "not known": 0.0}
        return words[age] if age in words else float(age.removesuffix(" ms")) * 1e6


def _read_library(text: str) -> Library:
    """Return the library that the text of a `guarantees.txt` describes. A line has cells between `|`; the first cell is
    its kind. The comment at the head of the file names the kinds, and the other cells of each."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    by_kind = {
        kind: [cells for word, *cells in rows if word == kind]
        for kind in ("title", "timeout", "error", "guarantee", "fact", "cannot")
    }
    return Library(
        by_kind["title"][0][0],
        {name: int(default) for name, default, _ in by_kind["timeout"]},
        tuple(
            ErrorRow(int(code), name, Resend(resend), Appended(appended), why)
            for code, name, resend, appended, why in by_kind["error"]
        ),
        tuple(
            Guarantee(
                *(anomaly, idempotence, retries, tuple(acks.split(", ")), in_flight, Holds(holds)),
                *(words, source, attack, tuple(Excuse[name.upper()] for name in excuses.split(", ") if name)),
            )
            for anomaly, idempotence, retries, acks, in_flight, holds, words, source, attack, excuses in by_kind[
                "guarantee"
            ]
        ),
        {Fact(name): value for name, value, _ in by_kind["fact"]},
        {Fact(name): source for name, _, source in by_kind["fact"]},
        dict(by_kind["cannot"]),
    )


LIBRARIES: Final[Mapping[str, Library]] = MappingProxyType(
    {
        tables.parent.name: _read_library(tables.read_text(encoding="utf-8"))
        for tables in sorted((Path(__file__).parents[1] / "clients").glob("*/guarantees.txt"))
    }
)
"""The client libraries by name. The name is that of the library's folder, and `clients.contract.client_adapter` takes
it."""

NO_ERROR: Final = 0

DEFINITE_CODES: Final = {
    name: frozenset(row.code for row in library.errors if row.code > 0 and row.definite)
    for name, library in LIBRARIES.items()
}
"""Name in `LIBRARIES` → brokers' error codes after which a record that was sent once was certainly never appended."""
REFUSED: Final = Outcome.FAILED
"""Outcome of a produce call that raised an exception: the library refused the record, so it was never sent. A call
that found the library's queue full is no attempt and has no outcome."""


def classify_report(code: int, library: str, *, may_resend: bool) -> Outcome:
    """Return the outcome of a delivery report. `code`: error code of Kafka or of the library; 0: no error. `library`:
    its name. All errors of a library that `LIBRARIES` lacks are INDETERMINATE.

    `may_resend`: the client may have sent the record more than once, so an earlier send may have been
    appended. This is the case with retries or idempotence. Without them it is the case once the record is
    older than `resend_after_s` of the library's adapter, unless its partition kept its leader meanwhile.
    """
    if code == NO_ERROR:
        return Outcome.ACKED
    if code in DEFINITE_CODES.get(library, ()) and not may_resend:
        return Outcome.FAILED
    return Outcome.INDETERMINATE


_AS_LIBRDKAFKA: Final = ("", "ackproof_simulator")
"""Names in footers for which the tables of librdkafka hold: '' of earlier versions, which had no other library, and
that of simulated clients, which behave as librdkafka does."""


def taken_back_codes(library: str) -> tuple[int, ...]:
    """Return the error codes of records that a producer of this library took back itself (`Resend.TAKEN_BACK`); () for
    an unknown library. `library`: name in the footer of a ledger's part, '' if the footer has none."""
    tables = LIBRARIES.get(LIBRDKAFKA if library in _AS_LIBRDKAFKA else library)
    return tuple(row.code for row in tables.errors if row.resend is Resend.TAKEN_BACK) if tables else ()


_INTRODUCTION: Final = """\
# What client libraries guarantee

Generated by `python -m ackproof.rundir.guarantees`; a test holds both equal. These tables decide which outcome an
attempt has (`failed` or `indeterminate`) and which classes of anomalies a producer's settings forbid.

An experiment names the library of its producers and of its live readers, each on its own and also in a matrix:

| `workload.producers.client`, `workload.consumers.client` | |
|---|---|
| `librdkafka` | the default; the one that the installed confluent-kafka contains |
| `java` | Kafka's Java client of the cluster's own release |
| `{java: "4.1.2"}` | the Java client of this release: clients and brokers may differ |
| `{command: [PROGRAM, "{settings}"]}` | [a program of yours](clients.md), in any language |

The final read is always librdkafka's. Case, ledger footers and plan name the library and its version. A file is refused
for what a client cannot do. Each library has setting names of its own, so `config` of one is refused by another.

Their ends differ too. librdkafka waits for room in its queue; a Java transaction that found no room is aborted. A Java
client needs a JRE 17.
"""
_ERRORS: Final = """\
Behaviour after each error of a produce request. A record is `failed` only if the error rules out an append, the record
was sent once, retries are 0 and idempotence is off. Every other error, listed or not, leaves it `indeterminate`.

| error | sent again | may have been appended | where it comes from |
|---|---|---|---|"""
_GUARANTEES: Final = """
Guarantees by the producer's settings. `refuted`: an attack showed the contrary, so the row forbids nothing. `with
exceptions`: single records are excused, each by evidence of its own: leader epochs and producer ids in the logs on
disk, its times, the clocks of brokers. A record without that evidence is forbidden.

| class | idempotence | retries | acks | in flight | guarantee | holds | source | attack |
|---|---|---|---|---|---|---|---|---|"""
_FACTS: Final = """
| fact | of this library | source |
|---|---|---|"""


def markdown() -> str:
    """Return the text of `docs/client-libraries.md`, made from the tables of all libraries."""
    lines = [_INTRODUCTION]
    for library in LIBRARIES.values():
        timeouts = ", ".join(f"`{name}` {default}" for name, default in library.timeouts_ms.items())
        lines += [f"## {library.title}", "", f"Time-outs by default, in ms: {timeouts}.", ""]
        lines.append(_ERRORS if library.errors else "Every error leaves an attempt `indeterminate`.")
        lines += [
            f"| {error.name} ({error.code}) | {error.resend} | {error.appended} | {error.why} |"
            for error in library.errors
        ]
        lines.append(_GUARANTEES)
        for row in library.guarantees:
            names = ", ".join(f"`{excuse.name.lower()}`" for excuse in row.excuses)
            settings = (row.idempotence, row.retries, ", ".join(row.acks), row.in_flight)
            holds = f"{row.holds} ({names})" if names else row.holds
            cells = (f"`{row.anomaly}`", *settings, row.words, holds, row.source, row.attack)
            lines.append(f"| {' | '.join(cells)} |")
        used = {excuse for row in library.guarantees for excuse in row.excuses}
        lines += ["", "Exceptions:", ""] if used else []
        lines += [f"* `{excuse.name.lower()}`: they {excuse.value}." for excuse in Excuse if excuse in used]
        lines.append(_FACTS)
        lines += [
            f"| {name} | {value or 'none'} | {library.sources[name]} |"
            for name, value in library.facts.items()
        ]
        lines += ["", "| its clients cannot | because |", "|---|---|"] if library.cannot else []
        lines += [f"| {use} | {why} |" for use, why in library.cannot.items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
