"""Whether the audit could count all, and whether what it counted is enough to tell anything."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.anomalies import LIVENESS, REMOVED, Anomaly


def check(facts: Facts) -> Iterator[Opinion]:
    """Lacks of the audit."""
    audit = facts.audit
    if not audit.complete:
        yield lacks("the audit is incomplete: " + ("; ".join(audit.reasons) or "no reason recorded"))
    if audit.unledgered:
        # A row is in the journal before its record is sent, and the journal outlives its client.
        yield lacks(f"{audit.unledgered:,} records were read whose producers' ledgers do not have them")
    wanted = (one for one in Anomaly if one not in LIVENESS or facts.recovery is not None)
    uncounted = [anomaly for anomaly in wanted if anomaly not in {*audit.counts, *REMOVED}]
    if uncounted:
        yield lacks(f"the audit did not look for {', '.join(uncounted)}")
    produced = audit.audited.produced
    handed = facts.pulses[-1].sent if facts.pulses else 0
    if handed > produced:
        yield lacks(
            f"{handed:,} records were handed to the producers' libraries, and their ledgers have {produced:,}"
        )
    if produced == 0:
        yield lacks("nothing was produced")
        return
    if audit.audited.acked == 0:
        yield lacks("nothing was acknowledged")
    share = audit.audited.indeterminate / produced
    bound = facts.case.experiment.evidence.max_indeterminate
    if share > bound:
        yield lacks(
            f"{share:.0%} of the attempts are indeterminate, more than the {bound:.0%} that the experiment allows"
        )
