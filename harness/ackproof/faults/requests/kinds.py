"""Kinds of request faults: requests that wait, are lost, come late or twice, or end their connection.

::

    - hold_request: {link: leader(orders/0) -> controllers, api: BrokerHeartbeat}
      for: 6s
    - lose_request: {link: clients -> leader(orders/0), api: Produce, side: response, times: 1}
      when: acked >= 1000

A broker takes the requests of a connection one after the other, and answers in that order. So requests that
follow a waiting one wait too. After a lost request nothing passes on its connection until the client gives
the connection up. Other connections, and so mostly other APIs, are not affected: brokers have one for
heartbeats, one for AlterPartition, one for each fetcher.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ackproof.base.units import Duration, unknown, wrong
from ackproof.experiment.base import Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Complaints
from ackproof.experiment.problems import Data
from ackproof.faults.requests.injection import (
    ANSWERS_WITHIN_S,
    SILENT_FOR_S,
    RequestWitness,
)
from ackproof.faults.requests.spec import RequestFault
from ackproof.network.requests.contents import ANSWERABLE, ERRORS, OF_MEMBERS, OF_PARTITIONS
from ackproof.network.requests.rules import Rule, RuleKind

_PLACED_S: Final = 0.2
"""Smallest delay, in seconds, for which a probe can tell whether the request or its response is delayed."""


class HoldRequest(RequestFault):
    """Requests, or their responses (`side`), wait. They continue in order when the fault heals, or as soon as
    `until_held` of them wait. Later requests on the connection wait too, unless `overtaken` is set."""

    KIND = "hold_request"
    SUMMARY = (
        "Hold requests of one API, or their responses, until the fault heals; then they continue in order."
    )
    HEALING = "release them"

    until_held: Whole | None = Field(
        None, ge=1, le=10_000, description="As soon as this many wait they continue, and no other waits."
    )
    overtaken: bool = Field(
        False, description="Let later requests on the same connection overtake the held one."
    )

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.HOLD, ways, until_held=self.until_held, overtaken=self.overtaken)

    def witness(self) -> RequestWitness:
        return RequestWitness("holds", how="silent", arrives=self.side == "response", timeout_s=SILENT_FOR_S)

    def check_more(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check_more(spec, say)
        if self.overtaken and self.side != "request":
            say.report(("overtaken",), "answers come in the order of the requests, or their connection ends")


class LoseRequest(RequestFault):
    """Requests, or only their responses, vanish, together with everything later on their connection."""

    KIND = "lose_request"
    SUMMARY = "Lose requests of one API, or only their responses, and everything later on the connection."

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.LOSE, ways)

    def witness(self) -> RequestWitness:
        return RequestWitness("loses", how="silent", arrives=self.side == "response", timeout_s=SILENT_FOR_S)


class CloseAtRequest(RequestFault):
    """The connection is closed at a request, or at its response, which is not passed on."""

    KIND = "close_at_request"
    SUMMARY = "Close the connection at a request of one API, or at its response, without passing it on."

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.CLOSE, ways)

    def witness(self) -> RequestWitness:
        return RequestWitness("closes at", how="closed")


class LateRequest(RequestFault):
    """Requests, or their responses, arrive later, by a fixed or random delay."""

    KIND = "late_request"
    SUMMARY = "Delay requests of one API, or their responses; other APIs are not delayed."
    STOPS_ANSWERS = False

    by: Duration = Field(ge=0.01, le=600, description="Delay.")
    jitter: Duration = Field(0.0, ge=0, le=600, description="Spread of the delay, drawn by `distribution`.")
    distribution: Literal["uniform", "normal", "exponential"] = Field(
        "uniform",
        description="uniform: at most `jitter` more or less; normal: `jitter` is the standard deviation, of which "
        "there are three at most; exponential: later than `by` by `jitter` on average.",
    )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {**(super().draw_fields(draw) or {}), "by": f"{draw.between(300, 900)}ms"}

    @model_validator(mode="after")
    def _jitter_is_less(self) -> LateRequest:
        if self._less > self.by:
            raise wrong("the jitter is more than the delay: nothing comes before it was sent")
        return self

    @property
    def _less(self) -> float:
        return self.jitter * {"uniform": 1, "normal": 3, "exponential": 0}[self.distribution]

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.LATE, ways, delay=self.by, jitter=self.jitter, spread=self.distribution)

    def witness(self) -> RequestWitness:
        least = self.by - self._less
        placed = least >= _PLACED_S
        return RequestWitness(
            "delays",
            timeout_s=ANSWERS_WITHIN_S + 2 * self.by + 8 * self.jitter,
            look_after_s=least / 2 if placed else None,
            least_s=least,
            arrives=self.side == "response" if placed else None,
        )


class RepeatRequest(RequestFault):
    """Requests are sent a second time, at once or later; the second response is dropped."""

    KIND = "repeat_request"
    SUMMARY = "Send requests of one API twice; the second response is dropped."
    STOPS_ANSWERS = False
    NEEDS_API = True

    by: Duration = Field(
        0.0,
        ge=0,
        le=600,
        description="Delay of the second request, behind others; by default it follows at once.",
    )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {**(super().draw_fields(draw) or {}), "side": "request"}

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.REPEAT, ways, delay=self.by)

    def witness(self) -> RequestWitness:
        return RequestWitness("repeats", wanted=2, later_s=self.by)

    def check_more(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check_more(spec, say)
        producers = spec.workload.producers
        if self.side != "request":
            say.report(
                ("side",), "a response that comes twice ends the connection", "requests can be repeated"
            )
        elif self.api == "Produce" and not producers.idempotence and producers.retries == 0:
            why = "without idempotence and retries a doubled record counts against Kafka"
            say.report(("api",), why, "leave api: Produce out, or retries: 0")


def _read_error(value: object) -> object:
    if not isinstance(value, str) or value not in ERRORS:
        raise unknown("error", list(ERRORS), str(value))
    return value


ErrorField: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_error),
    WithJsonSchema({"type": "string", "title": "Error", "enum": list(ERRORS)}),
]


class AnswerRequest(RequestFault):
    """Requests are answered with an error and do not reach the node (`side: request`); or they reach it, and the error
    is put into its response (`side: response`)."""

    KIND = "answer_request"
    SUMMARY = (
        "Answer requests of one API with an error, without passing them to the node; or put the error "
        "into the node's own responses."
    )
    NEEDS_API = True

    error: ErrorField = Field(
        description="Kafka's name of the error, for the whole response or for each partition."
    )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, `api`, and an `error` after which the client sends the request
        again.

        Return None if the drawn link carries no requests of such an API.
        """
        errors = {"Fetch": "FETCH_SESSION_ID_NOT_FOUND", "BrokerHeartbeat": "NOT_CONTROLLER"}
        link, api = draw.request(*errors)
        return {"link": link, "api": api, "error": errors[api]} if api in errors else None

    @property
    def must_name_partition(self) -> bool:
        """Return True if this API reports errors for each partition, so that a probe must name a partition."""
        return self.api in OF_PARTITIONS

    def rule(self, ways: tuple[str, ...]) -> Rule:
        return self._rule(RuleKind.ANSWER, ways, code=ERRORS[self.error])

    def witness(self) -> RequestWitness:
        return RequestWitness("answers", code=ERRORS[self.error], arrives=self.side == "response")

    def check_more(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check_more(spec, say)
        producers = spec.workload.producers
        there = (*ANSWERABLE, *OF_PARTITIONS, *OF_MEMBERS)
        if self.api not in there:
            say.report(("api",), f"a response of {self.api} has no error", f"these have: {', '.join(there)}")
        elif self.api == "Produce" and self.error == "DUPLICATE_SEQUENCE_NUMBER":
            say.report(
                ("error",), "clients take it for an acknowledgement: what never arrived would be called lost"
            )
        elif self.side == "response" and self.api == "EndTxn":
            say.report(("side",), "what was committed would be called aborted by its own client")
        elif (
            self.side == "response"
            and self.api == "Produce"
            and not (producers.idempotence or producers.retries)
        ):
            say.report(("side",), "without idempotence and retries what was written would be called refused")

    def __str__(self) -> str:
        return f"{super().__str__()} with {self.error}"
