"""Programs and libraries besides Java and Kafka that faults and observation use, each found, built or fetched once.

* toxiproxy-server, the TCP proxy of links: from the PATH, else built by Go from its module;
* Prometheus' JMX exporter, the Java agent that serves a node's metrics over HTTP: from Maven;
* the clock library (`clock.c`), which sets the wall clock of one JVM: compiled here;
* nft, the kernel's packet filter: from the PATH, for root only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from ackproof.base.environment import cache_root
from ackproof.base.errors import BadInput, MissingTool
from ackproof.provision import maven
from ackproof.provision.cache import build_once, run_program, sha256
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore
from ackproof.rundir.metrics import METRICS

TOXIPROXY_VERSION: Final = "2.12.0"
TOXIPROXY: Final = "toxiproxy-server"
INSTALL_TOXIPROXY: Final = (
    f"put {TOXIPROXY} {TOXIPROXY_VERSION} on the PATH (https://github.com/Shopify/toxiproxy/releases), "
    "or install Go 1.23 or newer, which builds it"
)
_MODULE: Final = "github.com/Shopify/toxiproxy/v2"
_SUM: Final = "h1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg="
"""Go's checksum of the Toxiproxy module in this version. The built program carries it."""
_GO_AT: Final = "/usr/local/go/bin"
"""Folder where Go's installer puts `go`; it may not be on the PATH."""
_BUILD_WITHIN_S: Final = 600.0


def toxiproxy_server(progress: ProgressSink = ignore) -> Path:
    """Return the path of the Toxiproxy server: from the PATH, else built into the cache (10 to 45 s, once). Raises
    `MissingTool` without Go, `ProvisionFailed` if Go cannot build it, `WaitTimeout` if it takes too long."""
    if (found := shutil.which(TOXIPROXY)) is not None:
        return Path(found).absolute()
    folder = _toxiproxy_folder()
    build_once(folder, lambda building: _build_toxiproxy(building, progress), progress)
    return folder / TOXIPROXY


def locate_toxiproxy() -> str:
    """Return the path of the Toxiproxy server, or words that say how it will be built; builds nothing. Raises
    `MissingTool` if it must be built and Go is missing."""
    if (found := shutil.which(TOXIPROXY)) is not None:
        return found
    if _toxiproxy_folder().exists():
        return str(_toxiproxy_folder() / TOXIPROXY)
    return f"not there yet; {_find_go()} builds {TOXIPROXY_VERSION} when links are to be broken"


def _toxiproxy_folder() -> Path:
    return cache_root() / f"toxiproxy-{TOXIPROXY_VERSION}"


def _find_go() -> Path:
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{_GO_AT}")
    if found is None:
        raise MissingTool(TOXIPROXY, "link faults use it as their TCP proxy", INSTALL_TOXIPROXY)
    return Path(found)


def _build_toxiproxy(folder: Path, progress: ProgressSink) -> None:
    go = _find_go()
    progress(Progress(f"building {TOXIPROXY} {TOXIPROXY_VERSION} with Go, this once: some 10 to 45 s"))
    status, output = run_program(
        [str(go), "install", f"{_MODULE}/cmd/server@v{TOXIPROXY_VERSION}"],
        folder,
        role="go",
        what=f"Go to build {TOXIPROXY}",
        timeout_s=_BUILD_WITHIN_S,
        env={"GOBIN": str(folder), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
    )
    built = folder / "server"
    if status != 0 or not built.exists():
        said = " ".join(output.split())[-300:]
        raise ProvisionFailed(f"Go could not build {TOXIPROXY} {TOXIPROXY_VERSION} (exit {status}): {said}")
    _, build_info = run_program(
        [str(go), "version", "-m", str(built)],
        folder,
        role="go",
        what=f"Go to show what {TOXIPROXY} was built from",
        timeout_s=60,
    )
    wanted = ["mod", _MODULE, f"v{TOXIPROXY_VERSION}", _SUM]
    if not any(line.split() == wanted for line in build_info.splitlines()):
        raise ProvisionFailed(
            f"{TOXIPROXY} was not built from the locked files of {_MODULE} v{TOXIPROXY_VERSION}; expected {_SUM}"
        )
    built.rename(folder / TOXIPROXY)
    (folder / "go.log").unlink()


EXPORTER_VERSION: Final = "0.20.0"
"""Version of the JMX exporter. 1.0.1, the only later one in Maven Central, takes three times the processor time."""
EXPORTER_SHA256: Final = "8b67ed40485d475648c36d11d21464b484406f85faf912b3363f71a6a7861320"
_ATTRIBUTES: Final = (
    "Count", "Min", "Max", "Mean", "StdDev",
    "50thPercentile", "75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile", "999thPercentile",
    "MeanRate", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate", "EventType", "RateUnit", "LatencyUnit",
)  # fmt: skip
"""Attributes of Kafka's meters and histograms. The exporter reads only those that `METRICS` needs: to read a
quantile, Kafka sorts a copy of the histogram."""


def exporter_jar(progress: ProgressSink = ignore) -> Path:
    """Return the jar of Prometheus's JMX exporter, a Java agent: from the cache, else fetched with Maven. Raises
    `MissingTool` without mvn or Java, `ProvisionFailed` for a failed download or wrong SHA-256, `WaitTimeout` if it
    takes too long."""
    artifact = ("io.prometheus.jmx", "jmx_prometheus_javaagent", EXPORTER_VERSION)
    return single_jar("jmx-exporter", "the JMX exporter", artifact, EXPORTER_SHA256, progress)


def single_jar(
    entry: str, what: str, artifact: maven.Artifact, digest: str, progress: ProgressSink = ignore
) -> Path:
    """Return the jar of an artifact from the cache, else fetch it with Maven. The SHA-256 is checked in both cases.

    `entry`: beginning of the name of its cache folder. `what`: its name in messages. `digest`: its SHA-256 in hex.
    Raises `MissingTool` without mvn or Java, `ProvisionFailed` for a failed download or wrong SHA-256, `WaitTimeout` if
    it takes too long.
    """
    _, name, version = artifact
    file = f"{name}-{version}.jar"
    folder = cache_root() / f"{entry}-{version}-{digest[:12]}"

    def fetch(building: Path) -> None:
        work, jars = building / "work", building / "jars"
        work.mkdir()
        maven.fetch(f"{what} {version}", [artifact], jars, work, expected=[file], progress=progress)
        (jars / file).rename(building / file)
        _verify_jar(building / file, digest)
        shutil.rmtree(jars)
        shutil.rmtree(work)

    jar = build_once(folder, fetch, progress) / file
    _verify_jar(jar, digest, f". To fetch it again: rm -r {folder}")
    return jar


@cache
def _verify_jar(jar: Path, digest: str, remedy: str = "") -> None:
    if (got := sha256(jar)) != digest:
        raise ProvisionFailed(f"wrong SHA-256 of {jar}: expected {digest}, got {got}; it is not used{remedy}")


def java_agent(jar: Path, listens: object, settings: Path) -> str:
    """Return the JVM argument by which the exporter (`jar`, configured by the file `settings`) serves a node's
    metrics.

    `listens`: the address where it serves them, as `host:port`.
    """
    return f"-javaagent:{jar}={listens}:{settings}"


def exporter_settings() -> str:
    """Return the YAML configuration of the JMX exporter: it exports only the metrics of `rundir.metrics.METRICS`, under
    their names there."""
    beans = list(dict.fromkeys(metric.bean for metric in METRICS.values()))
    lines = ["startDelaySeconds: 0", "includeObjectNames:", *(f'  - "{bean}"' for bean in beans)]
    lines.append("excludeObjectNameAttributes:")
    for bean in beans:
        wanted = {metric.attribute for metric in METRICS.values() if metric.bean == bean}
        if wanted != {"Value"}:
            unasked = ", ".join(f'"{name}"' for name in _ATTRIBUTES if name not in wanted)
            lines.append(f'  "{bean}": [{unasked}]')
    lines.append("rules:")
    for metric in METRICS.values():
        domain, _, keys = metric.bean.partition(":")
        pattern = f"{domain}<{', '.join(keys.split(','))}><>{metric.attribute}:"
        lines += [
            f"  - pattern: '^{pattern}'",
            f"    name: {metric.name}",
            "    type: UNTYPED",
            "    cache: true",
        ]
    return "\n".join([*lines, ""])


INSTALL_COMPILER: Final = "apt-get install gcc libc6-dev"
_CLOCK_SOURCE: Final = Path(__file__).with_name("clock.c")
_COMPILE_WITHIN_S: Final = 60.0


def find_compiler() -> Path:
    """Return a C compiler from the PATH. Raises `MissingTool` if there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return Path(found)
    raise MissingTool("a C compiler", "the fault clock_jump compiles a small C library", INSTALL_COMPILER)


def clock_library() -> Path:
    """Return the clock library for LD_PRELOAD; compile it into the cache if it is missing.

    libfaketime is not used: it takes over timed waits too, and JVM threads that wait for each other take minutes
    instead of milliseconds. Raises `MissingTool` without a C compiler, `ProvisionFailed` if the compiler fails.
    """
    made = cache_root() / "clock" / f"{hashlib.sha256(_CLOCK_SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if made.exists():
        return made
    compiler = find_compiler()
    made.parent.mkdir(parents=True, exist_ok=True)
    new = made.with_suffix(f".{os.getpid()}")
    # no library is linked, not even C's: a container may have another
    flags = ("-O2", "-shared", "-fPIC", "-nostdlib")
    command = [str(compiler), *flags, "-o", str(new), str(_CLOCK_SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProvisionFailed(f"{compiler} cannot compile clock.c: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        raise ProvisionFailed(f"{compiler} cannot compile clock.c ({INSTALL_COMPILER}): {said}")
    new.replace(made)
    return made


INSTALL_NFT: Final = "apt-get install nftables"


def find_nft() -> Path:
    """Return the path of the program nft. Raises `BadInput` if this user is not root, `MissingTool` if nft is not
    installed."""
    if os.geteuid() != 0:
        raise BadInput(
            "lost and dropped packets are not possible without root: a TCP proxy sees no packets, and the "
            "kernel's packet filter takes rules from root only"
        )
    found = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise MissingTool(
            "nft", "faults that lose or drop packets use the kernel's packet filter", INSTALL_NFT
        )
    return Path(found)
