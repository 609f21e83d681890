"""The nightly run: catalogue × releases × backends, a storm seeded with the date, the slow tests. `make nightly`.

    python tools/nightly.py                                 everything, on this machine
    python tools/nightly.py --list                          show the jobs, run nothing
    python tools/nightly.py --shard 1/4                     the first of four shards
    python tools/nightly.py --only 'baseline*' --releases 4.4.0 --backends process
    python tools/nightly.py --repeat 5 --only jepsen-2013   five repeats of each case
    python tools/nightly.py --collect FOLDER                one page from the results of several shards
    python tools/nightly.py --collect FOLDER --history OLD  and a trend over all nights in OLD

Every job is one `ackproof run`, or for slow tests a Python module, with a time limit; afterwards `ackproof clean` must
find nothing. Writes `result.json` and `summary.md` into `--out`; in a workflow also $GITHUB_STEP_SUMMARY, and
annotations. Exit code 0: no problem; 1: a problem; 254: wrong usage or a broken experiment file."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cluster.containers import presence
from ackproof.experiment.kafka import NEWEST
from night.doing import do
from night.history import keep
from night.jobs import Night, plan_night, shard_of
from night.page import annotations, page
from night.results import JobResult, ShardResult

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str]) -> int:
    given = _arguments(arguments)
    try:
        if given.collect is not None:
            if given.history is not None and not keep(given.collect, given.history):
                print(f"{given.history}: no night of which a trend could be told", file=sys.stderr)
            return _conclude(_collected(given.collect), given.out or given.collect)
        index, _, count = given.shard.partition("/")
        night = plan_night(
            [file for file in _catalogue() if fnmatchcase(file.stem, given.only)],
            given.releases.split(","),
            given.backends.split(",") if given.backends else _backends(),
            given.date,
            slow_tests=given.only == "*",
        )
        if given.repeat is not None:
            night = night.repeated(given.repeat)
        jobs = shard_of(night.jobs, int(index), int(count))
    except (BadInput, ValueError) as error:
        print(error, file=sys.stderr)
        return 254
    if given.list:
        for job in jobs:
            print(f"{job.weight:4}  {job.name}")
        for refused in night.refused:
            print(f"   –  {refused.name}: {refused.why}")
        return 0
    out = given.out or Path("runs") / f"night-{given.date}-{index}of{count}"
    if (out / "result.json").exists():
        print(f"{out} holds a night already; name another with --out", file=sys.stderr)
        return 254
    results: list[JobResult] = []
    for number, job in enumerate(jobs, start=1):
        print(f"[{number}/{len(jobs)}] {job.name} …", end=" ", flush=True)
        results.append(do(job, out))
        print(f"{results[-1].seconds:.0f} s, {'; '.join(results[-1].problems()) or 'well'}", flush=True)
        _save(results, night, given.date, given.shard, out)
    return _conclude([_save(results, night, given.date, given.shard, out)], out)


def _catalogue() -> list[Path]:
    folder = ROOT / "experiments"
    below = ("reports", "points", "groups")
    return [*folder.glob("*.yaml"), *(file for name in below for file in (folder / name).glob("*.yaml"))]


def _backends() -> list[str]:
    """Return the backends of this machine: processes, and containers if an engine answers. In CI both are required."""
    if os.environ.get("CI") or presence.listening():
        return ["process", "docker"]
    print("no container engine answers here: containers are left out", file=sys.stderr)
    return ["process"]


def _save(
    results: Sequence[JobResult], night: Night, date: datetime.date, shard: str, out: Path
) -> ShardResult:
    """Write `result.json` with the results so far, and return them. It is called after every job, so that an
    interrupted night leaves its results."""
    refused = tuple((one.name, one.why) for one in night.refused)
    result = ShardResult(date=str(date), shard=shard, jobs=tuple(results), refused=refused)
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(result.model_dump_json(indent=1), encoding="utf-8")
    return result


def _collected(folder: Path) -> list[ShardResult]:
    files = sorted(folder.rglob("result.json"))
    if not files:
        raise BadInput(f"{folder}: no result.json of any shard is below it")
    return [ShardResult.model_validate_json(file.read_text(encoding="utf-8")) for file in files]


def _conclude(shards: Sequence[ShardResult], out: Path) -> int:
    text = page(shards)
    (out / "summary.md").write_text(text, encoding="utf-8")
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    if os.environ.get("GITHUB_ACTIONS"):
        for line in annotations(shards):
            print(line)
    print(f"summary: {out / 'summary.md'}")
    return 0 if shards and all(shard.well for shard in shards) else 1


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="the night's work", epilog="exit codes: 0 well, 1 not, 254 usage"
    )
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--releases", default=",".join(NEWEST), metavar="V,…")
    parser.add_argument(
        "--backends", metavar="B,…", help="process, and docker where an engine answers, if not given"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="experiments by file name; no slow tests then"
    )
    parser.add_argument(
        "--date", type=datetime.date.fromisoformat, default=datetime.datetime.now(datetime.UTC).date()
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, metavar="N", help="each case N times: five out of five?")
    parser.add_argument("--list", action="store_true", help="say what would be done")
    parser.add_argument(
        "--collect", type=Path, metavar="FOLDER", help="one page from the results below FOLDER"
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="FOLDER",
        help="with --collect: keep this night there, and write its trend.html",
    )
    try:
        return parser.parse_args(arguments)
    except SystemExit as end:
        raise SystemExit(254 if end.code else 0) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
