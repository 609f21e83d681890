"""The experiment that forces a story (release, settings, script), and the outcome of its run.

A story happened, diverged at a step (with the states of the model and of Kafka there), or was inconclusive.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ruamel.yaml import YAML

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import ELR, LINES, features_of, not_a_version, numbers
from ackproof.experiment.problems import Data
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import AuditFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import ScriptStep, read_timeline
from ackproof_model.force.story import Story
from ackproof_model.force.translate import Forced
from ackproof_reference.explore.model import ActionKind
from ackproof_reference.rules import rules_of

TOPIC: Final = "orders"
_LAG_MS: Final = 3000
_LATER_MS: Final = 60_000
"""Retry backoff of producers, so long that they send again only after the script."""
_ACKS: Final = {-1: "all"}
_HEAD: Final = """\
# A story of the reference implementation as a script, written by `ackproof force`; `ackproof run` runs it again.
# {kind}: {text}
#
"""


@dataclass(frozen=True)
class Ground:
    """Kafka release and backend on which a counterexample is forced. `rules`: release whose rules the counterexample
    follows, as `ackproof explore --rules` takes it.
    """

    rules: str
    release: str
    backend: str = "process"

    @classmethod
    def from_rules(cls, rules: str, release: str | None = None, backend: str | None = None) -> Ground:
        """Return the release and backend for forcing a counterexample: by default the newest release of the line that
        `rules` name, with backend `process`.

        `release` and `backend` override the defaults. Raises `BadInput` for ZooKeeper rules, for a `release`
        that is no version, and if no release of the line is known and `release` is None.
        """
        if rules.endswith("-zk"):
            raise BadInput(
                "a story of ZooKeeper mode cannot be forced: which requests are sent where is known of KRaft"
            )
        if release is not None and (why := not_a_version(release)):
            raise BadInput(f"--kafka: {why}")
        line = numbers(rules)[:2]
        found = next((one.releases[-1] for one in LINES if one.number == line), None)
        if release is None and found is None:
            there = ", ".join(map(str, LINES))
            raise BadInput(f"no release of Kafka {rules} runs here (there are {there}); say one with --kafka")
        return cls(rules, release or found or "", backend or cls.backend)


def file_text(story: Story, forced: list[Forced], ground: Ground, *, repeat: int = 1) -> str:
    """Return the text of an experiment file whose script forces the counterexample.

    `forced`: the steps of its script, as `translated` returns them. `repeat`: number of runs. Raises `BadInput` if
    the rules have eligible leader replicas, and the release has none.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.width = 200
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(_data(story, forced, ground, repeat), text)
    return _HEAD.format(kind=story.kind, text=story.text) + text.getvalue()


def _data(story: Story, forced: list[Forced], ground: Ground, repeat: int) -> dict[str, Data]:
    scope, rules = story.scope, story.scope.rules
    config: dict[str, Data] = {}
    kinds = {line.action.kind for line in story.way}
    if ActionKind.PROPOSE_SHRINK in kinds:
        config["replica.lag.time.max.ms"] = _LAG_MS
    topic: dict[str, Data] = {
        "min.insync.replicas": rules.min_insync,
        "unclean.leader.election.enable": rules.unclean_election,
    }
    producers: dict[str, Data] = {
        "count": 1 if scope.idempotent else scope.records,
        "acks": _ACKS.get(scope.acks, str(scope.acks)),
        "idempotence": scope.idempotent,
        "delivery_timeout": "5min",
        "request_timeout": "4min",
    }
    if scope.budget.retries:
        producers["config"] = {"socket.timeout.ms": _LAG_MS}
    elif any(line.action.refuses for line in story.way):
        # The model's client gives up what is refused; librdkafka sends it again, whatever `retries` is.
        producers["config"] = {"retry.backoff.ms": _LATER_MS, "retry.backoff.max.ms": _LATER_MS}
    cluster: dict[str, Data] = {
        "kafka": ground.release,
        "brokers": scope.brokers,
        "controllers": 1,
        "timing": "script",
        "config": config,
    }
    if ELR in features_of(ground.release):
        cluster["features"] = {ELR: int(rules.elr)}
    elif rules.elr and rules_of(ground.rules).elr:
        raise BadInput(f"Kafka {ground.release} has no eligible leader replicas, and the story's rules have")
    expected: dict[str, Data] = {story.kind: "> 0"} if story.kind in list(Anomaly) else {}
    return {
        "name": f"forced-{story.kind.replace(' ', '-')}",
        "description": f"{story.kind}: {story.text}"[:900],
        "backend": ground.backend,
        "cluster": cluster,
        "topics": {TOPIC: {"assignment": [list(scope.assigned or scope.ids)], "config": topic}},
        "workload": {"producers": producers, "consumers": {"live": 0}, "duration": "1s"},
        "faults": [
            {
                "script": {"holds": ["fetches", "metadata", "proposals"], "steps": [f.entry for f in forced]},
                "at": "0s",
            }
        ],
        **({"expect": [expected]} if expected else {}),
        "repeat": repeat,
        "seed": 7,
    }


class ForcedVerdict(StrEnum):
    """Verdict on a forced counterexample: whether the real brokers followed it."""

    HAPPENED = "HAPPENED"
    """Each step was observed on the brokers, and then the anomaly, if the audit counts its class."""
    DIVERGED = "DIVERGED"
    """The brokers did something else than the model."""
    NOT_FORCEABLE = "NOT FORCEABLE"
    """No step of a script can do what a step of the counterexample does."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """The run does not show whether the brokers followed the counterexample."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a forced counterexample; `why` is a sentence.

    `number`: step of the counterexample at which the run departed from the model; 0: none, or before the first
    step. `model`, `kafka`: both states at that step, as text. If only the anomaly is missing: the finding, and the
    brokers' last state. `seconds`: length of the run.
    """

    verdict: ForcedVerdict
    why: str
    number: int = 0
    model: str = ""
    kafka: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.verdict}{f' at step {self.number}' if self.number else ''}: {self.why}"


def outcome_of(story: Story, forced: Sequence[Forced], run: CaseDir) -> Outcome:
    """Return the outcome of a run of the script. `forced`: the script's steps (`translated`).

    The first script step after which the brokers differ from the model decides. The outcome is INCONCLUSIVE if that
    step prepares the counterexample's first state, or did not cause the difference; else DIVERGED. Without such a step
    it is:

    * INCONCLUSIVE if the run ended before the script did.
    * HAPPENED if the audit has findings of the class, or does not count the class.
    * INCONCLUSIVE if the run's own verdict is INCONCLUSIVE.
    * DIVERGED otherwise.

    Raises `BadInput` if all steps were done, and `audit.json` or `verdict.json` is needed and cannot be read."""
    events, _ = read_timeline(run.timeline)
    steps = [event.what for event in events if isinstance(event.what, ScriptStep)]
    seconds = max((event.t_ns for event in events), default=0) / 1e9
    for place, step in enumerate(steps):
        if not step.wrong:
            continue
        number = forced[place].number
        if not number:
            return Outcome(
                ForcedVerdict.INCONCLUSIVE, f"before the story began: {step.wrong}", seconds=seconds
            )
        word = ForcedVerdict.INCONCLUSIVE if step.unexpected else ForcedVerdict.DIVERGED
        action = story.way[number - 1].action
        why = f"{action.actor}: {action.text}: {step.wrong}"
        return Outcome(word, why, number, step.waited_for, str(step.seen), seconds)
    if len(steps) < len(forced):
        return Outcome(ForcedVerdict.INCONCLUSIVE, _reasons(run), seconds=seconds)
    if story.kind not in list(Anomaly):
        return Outcome(
            ForcedVerdict.HAPPENED,
            f"{story.kind}: {story.text}; each step was seen on the brokers",
            seconds=seconds,
        )
    count = AuditFile.load(run.audit_json).counts.get(story.kind, 0)
    if count:
        return Outcome(
            ForcedVerdict.HAPPENED,
            f"{count} {story.kind}, each step was seen on the brokers",
            seconds=seconds,
        )
    if VerdictFile.load(run.verdict_json).verdict is Verdict.INCONCLUSIVE:
        return Outcome(ForcedVerdict.INCONCLUSIVE, _reasons(run), seconds=seconds)
    why = f"each step was seen, and nothing is {story.kind}"
    return Outcome(
        ForcedVerdict.DIVERGED, why, len(story.way), story.text, str(steps[-1].seen if steps else ""), seconds
    )


def _reasons(run: CaseDir) -> str:
    try:
        return "; ".join(VerdictFile.load(run.verdict_json).reasons) or "the script did not come to its end"
    except BadInput as error:
        return str(error)
