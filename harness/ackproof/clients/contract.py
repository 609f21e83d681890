"""The contract between the harness and a client process (README.md), and what an adapter of a client library offers.

A client gets one JSON file, `settings.json`, which is read without pydantic so that a client starts fast. A library is
a folder of this package with a module `adapter` and its tables, `guarantees.txt` (`rundir.guarantees`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, cast

from ackproof.base.errors import BadInput
from ackproof.rundir.guarantees import LIBRARIES, LIBRDKAFKA
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import SHARE, ClientLibrary

if TYPE_CHECKING:
    from ackproof.experiment.group import GroupSpec
    from ackproof.experiment.spec import ProducerSpec

ConfigValue: TypeAlias = str | int | float | bool
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

EXIT_CLEAN: Final = 0
EXIT_RESET: Final = 3
"""Exit status of a producer that closed cleanly because its library's client could not be used any more. The cause is a
fatal error, or a transaction that could not be begun or ended. The harness replaces the producer while the load goes
on, unless another one has taken over its transactional id."""
EXIT_ORPHAN: Final = 4
"""Exit status of a client whose harness is gone. The client ended at once and left its journal."""

CHUNK_ROWS: Final = 1 << 17
"""Default for the greatest number of rows of a ledger part, a power of two. For a producer: 4 MiB of its journal."""
FLUSH_S: Final = 1.0
"""Default for the seconds after which a reader closes a part of its ledger."""
SETTINGS: Final = "settings.json"
TRANSACTIONS_LOG: Final = "transactions.log"
"""File in a producer's folder: begin, commit and end of each transaction (README.md)."""
CONTROL_FD: Final = "ACKPROOF_CONTROL_FD"
"""Environment variable with the file descriptor of the control pipe (`channel`)."""
HIDDEN_FD: Final = "ACKPROOF_HIDDEN_FD"
"""Environment variable with the file descriptor from which a client reads library settings with secrets, as the adapter
writes them (`ClientAdapter.security_text`). No file may hold these settings.
"""


class Rotation(NamedTuple):
    """Sizes of ledger parts, in rows and seconds. `chunk_rows`: rows of a producer's part. A reader closes a part after
    `flush_rows` rows or `flush_s` seconds, whichever comes first."""

    chunk_rows: int = CHUNK_ROWS
    flush_s: float = FLUSH_S
    flush_rows: int = CHUNK_ROWS


WHOLE: Final = Rotation()
"""Sizes for a run that is audited as a whole, not window by window as a soak."""


class ClientAdapter(Protocol):
    """Functions of a client library's adapter. The modules `adapter` in `librdkafka`, `java` and `command`
    implement them.

    Durations are in seconds. A configuration has the library's own setting names.
    """

    def installed_library(self, release: str = "") -> ClientLibrary:
        """Return the library that clients will load, with its version. Download and prepare it if needed, which may
        take seconds.

        `release`: what `ClientChoice.release_for` returns: a release of the Java client, the name of a user's program,
        or '' for librdkafka. Raises `AckproofError` if the library cannot be made ready.
        """

    def writes_ledger(self) -> bool:
        """Return True if clients write the parts of their ledger themselves; False if they write only a journal, of
        which the harness makes the parts."""

    def producer_command(self, settings: ProducerSettings, path: Path) -> list[str]:
        """Return the command line of a producer with these settings, which are in the file `path`. Settings in a form
        of the library's own are written to a file next to it."""

    def reader_command(self, settings: ReaderSettings, path: Path) -> list[str]:
        """Return the command line of a reader with these settings, which are in the file `path`. Writes files as
        `producer_command` does."""

    def producer_config(
        self, spec: ProducerSpec, bootstrap: str, client: str, transactional_id: str = ""
    ) -> dict[str, ConfigValue]:
        """Return the configuration of one producer of the experiment. `client`: the producer's id. `transactional_id`
        '': no transactions.

        Raises `BadInput` if the experiment gives a setting that only the harness may set.
        """

    def reader_config(
        self,
        extra: Mapping[str, str],
        isolation: str,
        bootstrap: str,
        client: str,
        *,
        group: str = "",
    ) -> dict[str, ConfigValue]:
        """Return the configuration of one live reader; the final read is always by librdkafka. `client`: the reader's
        id.

        `extra`: the experiment's settings. `isolation`: the reader's isolation.level. `group`: id of the reader whose
        group.id, and so whose committed offsets, this reader shares: the first in its chain of replacements. '': a
        group.id of its own. Raises `BadInput` if the experiment gives a setting that only the harness may set.
        """

    def member_command(self, settings: GroupSettings, path: Path) -> list[str]:
        """Return the command line of a member of a consumer or share group with these settings, which are in the file
        `path`.

        The member prints events on standard output: those of docs/clients.md, or those that
        `group_ledgers.convert_shares` reads. It takes `stop` on standard input. Raises `BadInput` if the library has no
        such members.
        """

    def member_config(
        self, spec: GroupSpec, bootstrap: str, client: str, group: str, instance: str = ""
    ) -> dict[str, ConfigValue]:
        """Return the configuration of the consumer of one group member. `client`: the member's id. `instance`: its
        group.instance.id; '' for a dynamic member.

        Raises `BadInput` if the experiment gives a setting that only the harness may set.
        """

    def output_config(
        self, bootstrap: str, client: str, transactional_id: str = ""
    ) -> dict[str, ConfigValue]:
        """Return the configuration of the producer with which member `client` writes the group's output.
        `transactional_id` '': no transactions."""

    def objection(
        self,
        kind: Literal["producer", "consumer"],
        config: Mapping[str, ConfigValue],
        hidden: Mapping[str, str] = MappingProxyType({}),
    ) -> str | None:
        """Return why the library refuses a configuration; None if it accepts it. Connects to no broker. `hidden`:
        settings with secrets for `security_text`, which the client gets in addition."""

    def security_text(self, settings: Mapping[str, str]) -> str:
        """Return the TLS and SASL settings in the library's own format, as a client reads them from `HIDDEN_FD`.

        `settings`: with librdkafka's names; may be empty. Raises `BadInput` for a setting that the library cannot use;
        its text shows no value.
        """

    def resend_after_s(self, config: Mapping[str, ConfigValue]) -> float:
        """Return the age in seconds below which a record cannot have been sent twice. 0: a record can have been sent
        twice at any age. Infinity: the library never sends a record twice."""

    def delivery_timeout_s(self, config: Mapping[str, ConfigValue]) -> float:
        """Return the seconds after which the library reports a record as failed if it has no acknowledgement."""

    def request_wait_s(self, config: Mapping[str, ConfigValue]) -> float:
        """Return the longest time in seconds that a request may wait for its response; then the library gives up."""

    def known_wait(self, settings: GroupSettings, silent_s: float) -> str:
        """Return, as the end of a sentence, the known bug of the library that explains why a member waits for the
        answer to a commit; '' if none does. `silent_s`: seconds since the member last printed; it prints after each
        call that returns."""


def client_adapter(library: str) -> ClientAdapter:
    """Return the adapter of a client library by its name in `rundir.guarantees.LIBRARIES`. Raises KeyError for another
    name."""
    if library not in LIBRARIES:
        raise KeyError(library)
    return cast(ClientAdapter, import_module(f"ackproof.clients.{library}.adapter"))


def allowed_settings(kind: Literal["producer", "consumer"], extra: Mapping[str, str]) -> Mapping[str, str]:
    """Return the client settings of an experiment (`extra`) unchanged. Raises `BadInput` for a setting that only the
    harness may set."""
    from ackproof.experiment.settings import Scope, refusal

    if refused := [why for name in extra if (why := refusal(Scope(kind), name)) is not None]:
        raise BadInput(f"workload.{kind}s.config: {'; '.join(refused)}")
    return extra


def hide(settings: str) -> int:
    """Write the text of settings with secrets into an unnamed file in memory. Return its descriptor, which a child
    process can inherit and the caller must close."""
    descriptor = os.memfd_create("ackproof-settings", os.MFD_CLOEXEC)
    os.write(descriptor, settings.encode())
    return descriptor


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Settings that every client has. `client`: its id. `case_dir`: the folder that has its ledger and journal, which
    is the run directory or `second-read` in it. `places`: the partitions that it writes or reads. `config` is passed to
    the library unchanged.

    `library`, `library_version`: name and version of the client library.
    """

    client: str
    run_id: str
    case_dir: str
    places: tuple[TopicPartition, ...]
    origin_ns: int
    """The run's start on CLOCK_MONOTONIC: times in ledgers and events count from here."""
    config: dict[str, ConfigValue]
    library: str = LIBRDKAFKA
    library_version: str = ""
    command: Sequence[str] = ()
    """Command line of a user's program; empty for a client library."""

    @property
    def client_library(self) -> ClientLibrary:
        """The client library and its version, for the footer of each ledger part."""
        return ClientLibrary(self.library, self.library_version)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a settings file. Hidden settings (from the descriptor in `HIDDEN_FD`, if that is set) are added to
        `config` and `output_config`, except to an empty one. Raises OSError; ValueError, KeyError or TypeError for a
        file of another form."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        places = tuple(TopicPartition(str(topic), int(partition)) for topic, partition in raw["places"])
        own = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        descriptor = os.environ.get(HIDDEN_FD, "")
        hidden = json.loads(os.pread(int(descriptor), 1 << 20, 0)) if descriptor else {}
        configs = {name: {**own[name], **hidden} for name in ("config", "output_config") if own.get(name)}
        return cls(**{**own, "places": places, **configs})


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of one producer process.

    Record number `seq` goes to the partition `places[(seq + first_place) % len(places)]`. `on_demand`: True to send one
    record for each partition, then one for each command `SEND`, and at the rate after the command `FREE` (`channel`).
    `keys`: number of keys, assigned to records round-robin; 0: records have no key. `stamps_from_ns`: time of the wall
    clock in ns when CLOCK_MONOTONIC was 0. If `stamps` is True, a record's timestamp is this plus the time of its
    produce call, in whole ms. `identity`: where a service under test finds the identity (producer, seq) of a record:
    `header`, `key`, or a JSON pointer into its value (`/order/id`); '': in the harness's binary value alone.
    """

    producer: int
    """Number that identifies the producer in ledgers and records."""
    first_place: int
    value_size: int
    """Bytes of each record's value."""
    rate: float | None
    """This producer's own records per second; None: full speed."""
    chunk_rows: int
    """Greatest number of rows of a ledger part; a power of two."""
    transaction_size: int = 0
    """Number of records in a transaction; 0: no transactions."""
    abort_share: float = 0.0
    """Share of the transactions, 0 to 1, that are aborted on purpose."""
    on_demand: bool = False
    keys: int = 0
    stamps_from_ns: int = 0
    tombstone_every: int = 0
    """N: every Nth record of a key is a tombstone; 0: no tombstones."""
    identity: str = ""

    @property
    def stamps(self) -> bool:
        """True if the producer itself sets the timestamps of records. False for a user's program. Also False at full
        speed (`rate` None, not `on_demand`) without keys and `identity`: the library then sets them at the produce
        call, because librdkafka's `produce_batch` takes no timestamps."""
        if self.command:
            return False
        return self.rate is not None or self.on_demand or self.keys > 0 or self.identity != ""


@dataclass(frozen=True, kw_only=True)
class ReaderSettings(ClientSettings):
    """Settings of one reader: a live one, or the final one if `ends` is given. A reader assigns itself all of `places`
    and joins no group.

    `commit_s`: interval in seconds at which a live reader commits its positions; None: never. `from_committed`: True if
    a live reader starts at the committed offsets of its group, and at the beginning where there are none. `committed`:
    True if producers write transactions and `isolation` is read_committed; its ledger rows then have a phase
    `…_COMMITTED` (`rundir.outcome.ReadPhase`). `tells`: True if a live reader reports from which broker it fetches each
    partition. `flush_rows`, `flush_s`: as in `Rotation`. `share`: index of this process among the `shares` processes of
    one reader. Each has its own partitions and name.
    """

    reader: int
    """Number that identifies the reader in ledgers."""
    isolation: Isolation
    commit_s: float | None = None
    from_committed: bool = False
    flush_rows: int = CHUNK_ROWS
    flush_s: float = FLUSH_S
    committed: bool = False
    starts: Sequence[int] = ()
    """Offset at which the final reader starts, for each of `places`; empty for a live reader."""
    ends: Sequence[int] | None = None
    """Offset before which the final reader stops, for each of `places`; None for a live reader."""
    tells: bool = False
    idle_s: float = 0.0
    """The final reader gives up if none of its positions moves for this many seconds."""
    share: int = 0
    shares: int = 1
    process: str = ""
    """Name of this process and of its folder in `clients`. It differs among the processes of one reader."""

    @property
    def first_read_seq(self) -> int:
        """First `read_seq` that this process uses. Several processes of one reader use ranges that do not overlap."""
        return self.share * SHARE

    @property
    def first_part(self) -> int:
        """Number of the first ledger part that this process writes: a million times `share`, so that several processes
        of one reader use different numbers."""
        return self.share * 1_000_000


@dataclass(frozen=True, kw_only=True)
class GroupSettings(ClientSettings):
    """Settings of one member of a group. The group assigns its partitions, so `places` is empty. `config`: the
    consumer's."""

    group: str
    member: int
    """Number N of the client's id: `gN` in a consumer group, `hN` in a share group."""
    topics: Sequence[str]
    record_s: float
    """Seconds that the member takes to process each record."""
    instance: str = ""
    """The member's group.instance.id; '' for a dynamic member."""


@dataclass(frozen=True, kw_only=True)
class ShareSettings(GroupSettings):
    """Settings of one member of a share group. Fields without a text are those of `experiment.group.ShareGroupSpec`."""

    release_every: int
    releases: int
    reject_every: int
    renew_every: int
    group_config: dict[str, str]
    """Dynamic settings of the group, which the member sets before it joins."""


@dataclass(frozen=True, kw_only=True)
class MemberSettings(GroupSettings):
    """Settings of one member of a consumer group (`experiment.group.GroupSpec`)."""

    cooperative: bool
    """True if the protocol changes assignments incrementally: KIP-848, or a cooperative assignor."""
    commit: str
    """When the member commits (`experiment.group.GroupSpec.commit`): `before` or `after` it processes a batch, `timed`
    (every `commit_s`), `auto` (by the library), or in a `transaction` with its output."""
    commit_s: float
    """Interval of timed commits in seconds."""
    group_metadata: bool
    """True if transactions name member and generation (KIP-447), False if they name neither."""
    output: str
    """Topic to which the member copies each record that it processes; '' for none."""
    output_config: dict[str, ConfigValue]
    """Configuration of the producer that writes the member's output; empty without an output."""
    start: str
    """Where a partition without a committed offset begins: earliest or latest. With `committed`, the member fails if
    it gets such a partition."""
    reset: str
    """Where the member goes on if its position is not in the log: earliest or latest. With `error`, it fails."""
    batch: int
    """Greatest number of records that one poll of the member returns."""
