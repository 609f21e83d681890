"""Prometheus' JMX exporter as a Java agent: by HTTP it tells a node's own metrics, those of `ackproof.rundir.metrics`.

The only later one in Maven Central, 1.0.1, takes three times the processor time for a scrape, a third more to begin.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Final

from ackproof.base.cache import cache_root
from ackproof.provision import maven
from ackproof.provision.cache import build_once, sha256
from ackproof.provision.failure import ProvisionFailed
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.rundir.metrics import METRICS, Metric

VERSION: Final = "0.20.0"
NAME: Final = f"jmx_prometheus_javaagent-{VERSION}.jar"
SHA256: Final = "8b67ed40485d475648c36d11d21464b484406f85faf912b3363f71a6a7861320"
_ATTRIBUTES: Final = (
    "Count", "Min", "Max", "Mean", "StdDev",
    "50thPercentile", "75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile", "999thPercentile",
    "MeanRate", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate", "EventType", "RateUnit", "LatencyUnit",
)  # fmt: skip
"""Of Kafka's meters and histograms. For each quantile that is read the histogram is copied and sorted."""
_ARTIFACT: Final = ("io.prometheus.jmx", "jmx_prometheus_javaagent", VERSION)


def exporter_jar(progress: ProgressSink = ignore) -> Path:
    """The agent, from the cache, else fetched with Maven; compared with its SHA-256 either way, once per process.

    Raises `MissingTool` (mvn, java), `ProvisionFailed` (download, SHA-256).
    """
    folder = cache_root() / f"jmx-exporter-{VERSION}-{SHA256[:12]}"
    jar = build_once(folder, lambda building: _fetch(building, progress), progress) / NAME
    _check(jar)
    return jar


def _fetch(folder: Path, progress: ProgressSink) -> None:
    work, jars = folder / "work", folder / "jars"
    work.mkdir()
    what = f"the JMX exporter {VERSION}"
    maven.fetch(what, [_ARTIFACT], jars, work, expected=[NAME], progress=progress)
    (jars / NAME).rename(folder / NAME)
    _verify(folder / NAME)
    shutil.rmtree(jars)
    shutil.rmtree(work)


@cache
def _check(jar: Path) -> None:
    try:
        _verify(jar)
    except ProvisionFailed as error:
        raise ProvisionFailed(f"{error}. To fetch it anew: rm -r {jar.parent}") from error


def _verify(jar: Path) -> None:
    if (got := sha256(jar)) != SHA256:
        raise ProvisionFailed(f"wrong SHA-256 of {jar}: expected {SHA256}, got {got}; it is not used")


def java_agent(jar: Path, listens: object, settings: Path) -> str:
    """The JVM argument by which a node tells its metrics at this `host:port`."""
    return f"-javaagent:{jar}={listens}:{settings}"


def exporter_settings() -> str:
    """The agent's configuration: only the beans and attributes of the closed list, each under its name here."""
    beans = list(dict.fromkeys(one.bean for one in METRICS.values()))
    lines = ["startDelaySeconds: 0", "includeObjectNames:", *(f'  - "{bean}"' for bean in beans)]
    lines.append("excludeObjectNameAttributes:")
    for bean in beans:
        wanted = {one.attribute for one in METRICS.values() if one.bean == bean}
        if wanted != {"Value"}:
            unasked = ", ".join(f'"{name}"' for name in _ATTRIBUTES if name not in wanted)
            lines.append(f'  "{bean}": [{unasked}]')
    lines.append("rules:")
    for one in METRICS.values():
        lines += [
            f"  - pattern: '^{_as_matched(one)}'",
            f"    name: {one.name}",
            "    type: UNTYPED",
            "    cache: true",
        ]
    return "\n".join([*lines, ""])


def _as_matched(metric: Metric) -> str:
    """A bean and attribute as the exporter writes them for its patterns: `domain<key=value, …><>attribute: …`."""
    domain, _, keys = metric.bean.partition(":")
    return f"{domain}<{', '.join(keys.split(','))}><>{metric.attribute}:"
