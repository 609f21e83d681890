"""Scrapes the metrics exporter of each node once a second into a Parquet file, and keeps the newest round for
triggers."""

from __future__ import annotations

import http.client
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ackproof.cluster.protocol import Cluster, NodeState
from ackproof.network.addresses import Address
from ackproof.observe.watcher import Watcher
from ackproof.rundir import storage
from ackproof.rundir.clock import RunClock
from ackproof.rundir.metrics import EVERY_S, METRICS, UP, Metric
from ackproof.rundir.timeline import Timeline

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER_WITHIN_S: Final = 0.9
"""Time-out, in seconds, of a request to an exporter. A healthy exporter needs some milliseconds."""
FIRST_WITHIN_S: Final = 3.0
"""Maximum seconds that `start` waits for the first round. Increases of counters are unknown before that round."""
FAILED: Final = "jmx_scrape_error"
"""Metric of the exporter itself: 0 if it could read the beans."""
PATH: Final = "/metrics?" + "&".join(f"name[]={quote(name)}" for name in (*METRICS, FAILED))
"""Path that requests only `METRICS` and `FAILED`. The JVM's own metrics would cost more than all others together."""
FRESH_S: Final = 3.0
"""Maximum age, in seconds, of a round that `fresh` uses. There is one round per second."""
_ROWS_AT_ONCE: Final = 20_000

Row = tuple[int, int, int, str, float]
"""One row of the file: times of the request and of the answer (ns since the run's start), node id, metric, value."""


class Scraper(Watcher):
    """Asks the metrics exporter of each node once a second from `start` to `stop`. Writes the metrics to the Parquet
    file `path`, which appears once it is complete. Triggers of faults read the newest round by `fresh`."""

    NAME = "scraper"
    DOES = "scraping metrics"

    def __init__(self, cluster: Cluster, path: Path, timeline: Timeline) -> None:
        super().__init__(timeline)
        self._cluster = cluster
        self._path = path
        self._looked = threading.Event()
        self._newest: tuple[int, Mapping[int, Mapping[str, float] | None]] = (0, {})
        self._has: dict[int, set[str]] = {}
        self._exporters = dict(cluster.exporters())

    def start(self) -> None:
        """Start the thread, and wait at most `FIRST_WITHIN_S` seconds for the first round, so that counters are known
        before any event increases them."""
        super().start()
        self._looked.wait(FIRST_WITHIN_S)

    def fresh(self, metric: Metric, node: int | None) -> float | None:
        """Return the metric in the newest round of scrapes. `node` None: the sum or the maximum over all nodes, as the
        metric defines.

        The result is None without a round in the last `FRESH_S` seconds, or if none of these nodes has the metric. It
        is None, too, if one of them that may have the metric runs or is paused and did not answer.
        """
        t_ns, metrics = self._newest
        if not t_ns or self._timeline.clock.now() - t_ns > FRESH_S * 1e9:
            return None
        chosen = {node_id: values for node_id, values in metrics.items() if node in (None, node_id)}
        for node_id, values in chosen.items():
            if values is None and metric.name in self._has.get(node_id, {metric.name}):
                return None
        numbers = [number for values in chosen.values() if (number := metric.value_in(values)) is not None]
        return metric.combine(numbers) if numbers else None

    def _watch(self) -> None:
        from ackproof.rundir.schema import METRICS as COLUMNS

        unfinished = self._path.with_name(f".{self._path.name}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = []
        with (
            storage.create_parquet(unfinished, COLUMNS) as file,
            ThreadPoolExecutor(len(self._exporters), thread_name_prefix="scraper") as pool,
        ):
            for _ in self._looks(EVERY_S):
                rows += self._round(pool)
                self._looked.set()
                if len(rows) >= _ROWS_AT_ONCE:
                    file.write_table(_table(rows))
                    rows = []
            file.write_table(_table(rows))
        unfinished.rename(self._path)

    def _round(self, pool: ThreadPoolExecutor) -> list[Row]:
        """Ask every running node for its metrics. Return this round's rows: for each node the metric `UP`, 1 if it
        answered, and its metrics. A paused node is not asked (`UP` 0); a dead one has no row."""
        t_ns = self._timeline.clock.now()
        requests = {}
        rows: list[Row] = []
        answers: dict[int, Mapping[str, float] | None] = {}
        for node, address in self._exporters.items():
            state = self._cluster.nodes[node].state()
            if state is NodeState.RUNNING:
                requests[node] = pool.submit(_ask, address, self._timeline.clock)
            elif state is NodeState.STOPPED:
                rows.append((t_ns, t_ns, node, UP, 0.0))
            if state is not NodeState.GONE:
                answers[node] = None
        for node, request in requests.items():
            done_ns, values = request.result()
            answers[node] = values
            if values is not None:
                self._has.setdefault(node, set()).update(values)
            rows.append((t_ns, done_ns, node, UP, float(values is not None)))
            rows += [(t_ns, done_ns, node, name, value) for name, value in (values or {}).items()]
        self._newest = (t_ns, answers)
        return rows


def _ask(exporter: Address, clock: RunClock) -> tuple[int, Mapping[str, float] | None]:
    """Return the time at which the request ended, in ns since the run's start, and the metrics. The metrics are None if
    no answer came in time or the exporter failed."""
    with closing(http.client.HTTPConnection(*exporter, timeout=ANSWER_WITHIN_S)) as connection:
        try:
            connection.request("GET", PATH)
            response = connection.getresponse()
            text = response.read().decode("utf-8") if response.status == http.client.OK else ""
        except (OSError, http.client.HTTPException, UnicodeDecodeError):
            text = ""
    return clock.now(), parse_scrape(text)


def parse_scrape(text: str) -> Mapping[str, float] | None:
    """Return the value of each metric in a scrape in Prometheus' format, by ackproof's name (`METRICS`); metrics
    without a value are missing.

    Returns None if the text has another format, or the exporter failed.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    except ValueError:
        return None
    if samples.pop(FAILED, 1.0) != 0:
        return None
    # Kafka's means are NaN if nothing was measured yet.
    return {name: value for name, value in samples.items() if name in METRICS and not math.isnan(value)}


def _table(rows: Sequence[Row]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    from ackproof.rundir.arrow import text_array, to_arrow
    from ackproof.rundir.schema import METRICS as COLUMNS

    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = [
        text_array(column) if pa.types.is_string(field.type) else to_arrow(np.array(column), field.type)
        for field, column in zip(COLUMNS, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)
