"""Makes cases with one topic, for tests of the model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ackproof.experiment.case import Case
from ackproof.plan.cases import cases, load

_TEXT = """\
name: t
cluster: {{{cluster}}}
topics:
  orders: {{partitions: 1, replication_factor: {replicas}, config: {{min.insync.replicas: {min_insync}, {config}}}}}
workload:
  producers: {{acks: {acks}, {producers}}}
{faults}
"""


def case_of(
    fault: str = "",
    more: str = "",
    *,
    acks: str = "all",
    min_insync: int = 1,
    replicas: int = 3,
    cluster: str = "",
    config: str = "",
    producers: str = "",
    tail: str = "",
) -> Case:
    """Return the case of an experiment with one fault ('': without faults). `more`: a further line of the fault.
    `tail`: text after it."""
    faults = (
        "".join([f"faults:\n  - {fault}\n    at: 1s\n", f"    {more}\n" if more else ""]) if fault else ""
    )
    text = _TEXT.format(
        cluster=cluster,
        replicas=replicas,
        min_insync=min_insync,
        config=config,
        acks=acks,
        producers=producers,
        faults=faults + tail,
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "t.yaml"
        file.write_text(text)
        return cases(load(file))[0]
