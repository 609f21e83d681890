"""Faults of links that carry less, later, or not everything: throttle, delay, loss, drop_large, slow_close."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Final

from pydantic import Field, model_validator

from ackproof.base.units import ByteRate, Duration, Share, Size, wrong
from ackproof.experiment.backends import LINKS, Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.problems import Data
from ackproof.faults.links.named import NamedLinkFault
from ackproof.faults.links.spec import ANSWERS_WITHIN_S, SILENT_FOR_S, LinkObservation, names
from ackproof.network.mesh import Delay, DropLarge, Effect, Link, Loss, Mesh, SlowClose, Throttle
from ackproof.network.probe import OVERHEAD

VOLUME_S: Final = 1.0
"""Duration, in seconds, of the probe of a throttled link. It sends as much as the rate allows in that time,
at most 64 requests of `LARGEST` bytes."""
ROUNDS: Final = 5
THIN_LOOKS: Final = 3
FIRST_LOOKS: Final = 4
LOSS_ASKS: Final = 150
LARGEST: Final = 30_000


class ThrottleFault(NamedLinkFault):
    """Each connection carries at most `rate` in each direction."""

    KIND = "throttle"
    SUMMARY = "Limit the bandwidth of each connection of a link, per direction."

    rate: ByteRate = Field(ge=1024, le=1 << 30, description="Bandwidth in bytes per second.")

    def __str__(self) -> str:
        return f"{super().__str__()} to {self.rate / 1024:g}KB/s"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"link": draw.link(), "rate": f"{draw.between(8, 64)}KB/s"}

    def effect(self) -> Effect:
        return Throttle(self.rate)

    def volume(self) -> tuple[int, int]:
        """Return (bytes per request, number of requests) of a probe that takes `VOLUME_S` seconds at this rate. At high
        rates the probe takes less, because its size is limited."""
        size = max(OVERHEAD, min(LARGEST, round(self.rate * VOLUME_S)))
        return size, max(1, min(64, round(self.rate * VOLUME_S / size)))

    @property
    def _least_s(self) -> float:
        """Return the least seconds that a probe takes on a throttled link. That is 60 % of its time at `rate`, because
        a first burst passes unthrottled."""
        size, asks = self.volume()
        return 0.6 * min(VOLUME_S, size * asks / self.rate)

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link up to `THIN_LOOKS` times; return the fastest (`value`: seconds). A busy machine may be slow
        once, but a throttled link is never fast. The first probe that is too fast for a throttled link, or is not
        answered, is the last. `passes`: True if the last probe was answered."""
        size, asks = self.volume()
        best = math.inf
        for _ in range(THIN_LOOKS):
            answer = mesh.probe(link, timeout_s=10 * VOLUME_S, size=size, asks=asks)
            best = min(best, answer.seconds)
            if not answer.passed or best < self._least_s:
                break
        return LinkObservation(answer.passed, best, f"{size * asks} bytes took {best:.2f} s ({answer.how})")

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        # An earlier throttle or delay adds up with this one.
        return now.value >= before.value + max(self._least_s, min(before.value, VOLUME_S))

    def is_mended(self, before: LinkObservation, now: LinkObservation) -> bool:
        return now.passes and now.value <= max(0.5 * VOLUME_S, 2 * before.value)


class DelayFault(NamedLinkFault):
    """Everything arrives later, in each direction, so that a round trip takes twice `latency`."""

    KIND = "delay"
    SUMMARY = "Delay everything on a link, in each direction."

    latency: Duration = Field(ge=0.001, le=600, description="Delay, one way.")
    jitter: Duration = Field(
        0.0, ge=0, le=600, description="Largest deviation from the delay, drawn uniformly."
    )

    @model_validator(mode="after")
    def _jitter_is_less(self) -> DelayFault:
        if self.jitter > self.latency:
            raise wrong("the jitter is more than the latency: nothing arrives before it was sent")
        return self

    def __str__(self) -> str:
        return f"{super().__str__()} by {self.latency * 1000:g}ms"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, and `latency` from 50 to 150 ms, longer than a busy machine
        delays."""
        return {"link": draw.link(), "latency": f"{draw.between(50, 150)}ms"}

    def effect(self) -> Effect:
        return Delay(self.latency, self.jitter)

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link several times; return the shortest round trip (`value`: seconds; infinite if none was
        answered). A busy machine and lost packets only add to it.

        If the jitter is more than half of the latency, the median is returned instead.
        """
        rounds = [mesh.probe(link, timeout_s=ANSWERS_WITHIN_S + 6 * self.latency) for _ in range(ROUNDS)]
        took = [answer.seconds for answer in rounds if answer.passed]
        one_of = min if 2 * self.jitter <= self.latency else statistics.median
        value = one_of(took) if took else math.inf
        return LinkObservation(bool(took), value, f"a round trip takes {value * 1000:.1f} ms")

    def first_look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link before the fault; return the fastest of up to `FIRST_LOOKS` looks (`value`: seconds), because
        a machine may be busy for a moment. A slow first look would hide the delay."""
        best = self.look(mesh, link)
        for _ in range(FIRST_LOOKS - 1):
            if best.value < self.latency / 2:
                break
            best = min(best, self.look(mesh, link), key=lambda look: look.value)
        return best

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        return now.passes and now.value >= before.value + self.latency

    def is_mended(self, before: LinkObservation, now: LinkObservation) -> bool:
        return now.passes and now.value < before.value + self.latency


class LossFault(NamedLinkFault):
    """Packets are lost, in each direction; TCP sends them again, later and later."""

    KIND = "loss"
    SUMMARY = "Lose a share of a link's packets, in each direction (needs root)."
    NEEDS = LINKS | {Need.PACKETS}

    share: Share = Field(gt=0, le=1, description="Share of packets that are lost.")

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, and a `share` of 5 to 25 % of packets, with which connections
        survive."""
        return {"link": draw.link(), "share": f"{draw.between(5, 25)}%"}

    def effect(self) -> Effect:
        return Loss(self.share)

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link with many requests. `value` of the result: retransmitted packets per answer; `passes`: any was
        answered.

        Late answers prove nothing: another delay or a busy machine has the same effect.
        """
        answer = mesh.probe(link, timeout_s=2.5, asks=LOSS_ASKS)
        asked = f"{answer.answers} of {LOSS_ASKS} questions answered"
        value = answer.resent / max(1, answer.answers)
        return LinkObservation(answer.answers > 0, value, f"{asked}, {answer.resent} packets sent again")

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        # Losses by other faults vary from look to look.
        return before.passes and (now.value > 3 * before.value or not now.passes)

    def is_mended(self, before: LinkObservation, now: LinkObservation) -> bool:
        return now.passes and now.value <= 2 * before.value


class DropLargeFault(NamedLinkFault):
    """Large packets are lost in silence: connections are made and small requests pass, but data does not."""

    KIND = "drop_large"
    SUMMARY = "Lose a link's large packets in silence, as an MTU black hole does (needs root)."
    NEEDS = LINKS | {Need.PACKETS}

    above: Size = Field(
        ge=576, lt=LARGEST, description="Largest packet that passes, in bytes (at least 576: RFC 791)."
    )

    @property
    def _large(self) -> int:
        """Return the size, in bytes, of a probe that is too large to pass."""
        return min(LARGEST, 2 * self.above)

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why the loss of large packets cannot be observed while `first` is in force; '' if that is not certain.

        Either `first` already loses the large packets of all these links, or a reason of `LinkFault.at_odds` holds.
        """
        if why := super().at_odds(first, spec):
            return why
        if not isinstance(first, DropLargeFault) or first.above >= self._large:
            return ""
        links = self.sure_links(spec)
        there = links and set(links) <= set(first.sure_links(spec))
        return f"loses packets of {self._large} bytes over {names(links)}" if there else ""

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, and `above`. The latter is between 576 B (the smallest packet that
        every network must pass) and 1500 B (the MTU of Ethernet)."""
        return {"link": draw.link(), "above": f"{draw.between(576, 1500)}B"}

    def effect(self) -> Effect:
        return DropLarge(self.above)

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        small = mesh.probe(link, timeout_s=ANSWERS_WITHIN_S)
        large = mesh.probe(link, timeout_s=SILENT_FOR_S, size=self._large)
        return LinkObservation(
            large.passed, float(small.passed), f"small questions {small.how}, large ones {large.how}"
        )

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        return before.passes and not now.passes and now.value == 1


class SlowCloseFault(NamedLinkFault):
    """The end of a connection arrives late: the other side keeps the connection open until then."""

    KIND = "slow_close"
    SUMMARY = "Delay the end of a connection."

    delay: Duration = Field(ge=0.01, le=600, description="Delay.")

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, and `delay` from 200 to 1000 ms, longer than a busy machine delays
        a close."""
        return {"link": draw.link(), "delay": f"{draw.between(200, 1000)}ms"}

    def effect(self) -> Effect:
        return SlowClose(self.delay)

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        seconds = mesh.closing(link, timeout_s=ANSWERS_WITHIN_S + 3 * self.delay)
        if seconds is None:
            return LinkObservation(False, math.inf, "it did not close")
        return LinkObservation(True, seconds, f"closed after {seconds * 1000:.0f} ms")

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        return before.passes and now.value >= before.value + 0.8 * self.delay

    def is_mended(self, before: LinkObservation, now: LinkObservation) -> bool:
        return now.passes and now.value < before.value + 0.8 * self.delay
