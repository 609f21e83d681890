"""Recipes of synthetic cases: settings, losses, hostile names, missing files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ackproof.rundir.documents import QuietSeconds, Scalar, Timing
from ackproof.rundir.outcome import Verdict

ACKS = "workload.producers.acks"
MIN_ISR = "topics.orders.config[min.insync.replicas]"
WALL_NS = 1_782_000_000_000_000_000
CLASSES = (
    "lost",
    "overwritten",
    "duplicate",
    "resurrected",
    "surfaced",
    "phantom",
    "misrouted",
    "corrupted",
    "displaced",
    "reordered",
    "vanished",
    "conflict",
    "skipped",
    "rewound",
    "aborted-read",
    "torn-transaction",
    "early-read",
)
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "'\"><svg/onload=window.hacked=3>",
    "{{ 7*7 }} <!-- \u2028 \u202egnirts\u202c \x00\x1b[31m ]]> & |`|",
    "javascript:window.hacked=4",
)

CALM = QuietSeconds(
    seconds=20, asked_rate=2000, sent_rate=2000, median_ms=4, late_ms=30, looks_per_s=10,
    busy=0.4, stolen=0, cpu_pressure=0.05, io_pressure=-1, memory_pressure=0,
)  # fmt: skip
STARVED = CALM.model_copy(
    update={"sent_rate": 1100, "median_ms": 900, "stolen": 0.22, "cpu_pressure": 0.71}
    | {
        "starved": (
            "half of the acknowledgements took longer than 0.9 s",
            "22% of the processors' time went away",
        )
    }
)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


@dataclass(frozen=True)
class Recipe:
    """One case to make. `lost`: number of lost records of partition 0. `verdict` None: not judged; `error`: why the
    case did not end. `died`: True if node 2 dies after the second fault. `forbidden`: classes that the verdict forbids
    in addition to those that nothing allows. `complete`: False if the final read stopped early. `hostile`: True for
    details of events and findings that try to inject markup.

    `without`: names of files to leave out; `folder`: all files, `end`: the last events, `torn`: the end of the
    timeline's last line."""

    settings: Mapping[str, Scalar]
    lost: int = 0
    verdict: Verdict | None = Verdict.PASS
    error: str | None = None
    reasons: tuple[str, ...] = ()
    repeat: int = 1
    findings: Mapping[str, int] = field(default_factory=dict)
    """Number of findings of other classes than `lost`."""
    without: tuple[str, ...] = ()
    topic: str = "orders"
    hostile: bool = False
    forbidden: tuple[str, ...] = ()
    complete: bool = True
    partitions: int = 3
    experiment: str = "acks-matrix"
    died: bool = False
    ledgers: bool = False
    """True to write ledgers, and findings that agree with them: consecutive lost records, duplicates of a whole
    batch."""
    group: bool = False
    """True to add a consumer group (`synthetic_batch.groups`)."""
    calm: QuietSeconds | None = None
    timing: Timing | None = None

    @property
    def name(self) -> str:
        cell = ",".join(
            f"{path.split('.')[-1] if '[' not in path else path.split('[')[1][:-1]}={value}"
            for path, value in self.settings.items()
        )
        return f"{cell or 'only'}#{self.repeat}"


def matrix() -> list[Recipe]:
    """Return the cases of the main experiment with its usual result: acks 0 and 1 lose their unreplicated tail,
    acks=all nothing."""
    losses = {("0", 1): 1874, ("0", 2): 2011, ("1", 1): 1204, ("1", 2): 1391, ("all", 1): 0, ("all", 2): 0}
    return [
        Recipe({ACKS: acks, MIN_ISR: size}, lost=lost, findings={"surfaced": 12} if acks == "all" else {})
        for (acks, size), lost in losses.items()
    ]


def hostile() -> list[Recipe]:
    """Return the matrix with names and messages that try to inject HTML, Markdown or terminal codes."""
    return [
        replace(
            recipe,
            hostile=True,
            topic=HOSTILE[index % len(HOSTILE)],
            settings={ACKS: recipe.settings[ACKS], HOSTILE[0]: HOSTILE[index % 2 + 2]},
            verdict=Verdict.INCONCLUSIVE if index == 2 else Verdict.PASS,
            reasons=HOSTILE if index == 2 else (),
            experiment=HOSTILE[2],
        )
        for index, recipe in enumerate(matrix()[::2] + matrix()[1::2])
    ]


def missing() -> list[Recipe]:
    """Return four cases that each lack some files or the end of one, and two complete ones."""
    cells = matrix()
    everything = ("audit", "verdict", "samples", "series", "findings", "final", "ledger")
    error = (
        "node 2 ended by itself: exit status 1\nlast log lines:\n[ERROR] java.io.IOException: No space left"
    )
    return [
        replace(cells[0], verdict=None, error=error, without=everything, died=True),
        replace(cells[1], verdict=None, error="the folder was deleted", without=("folder",)),
        replace(
            cells[2], verdict=Verdict.INCONCLUSIVE, reasons=("fault 1: was not confirmed",), without=("torn",)
        ),
        replace(cells[3], verdict=None, without=("end", "audit", "verdict", "findings", "series", "final")),
        replace(
            cells[4],
            verdict=Verdict.FAIL,
            lost=12,
            forbidden=("lost",),
            reasons=("lost: 12 acknowledged records. Forbidden: acks=all",),
        ),
        cells[5],
    ]
