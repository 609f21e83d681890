"""Makes cases with one topic, for tests of the model."""

from __future__ import annotations

from ackproof.experiment.case import Case
from run_directory import read_case

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
    """Return the case of an experiment with one fault at 1 s ('': without faults). `more`: a further line of the fault.
    `cluster`, `config`, `producers`: fields of the cluster, settings of the topic, fields of the producers. `tail`:
    text after the faults."""
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
    return read_case(text)
