"""Options that several commands share: a setting over what the files say, and which cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ackproof.base.errors import BadInput
from ackproof.rundir.storage import locate

if TYPE_CHECKING:
    from ackproof.plan.soaking import Soak
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir

FILES: Final = click.Path(path_type=Path)


def over_the_files(command: Callable[..., int]) -> Callable[..., int]:
    """What is said over the files: `settings`, those of `--set` and what `--settings-from` comes to."""

    @click.option(
        "--settings-from",
        type=FILES,
        help="Broker file of your own (server.properties): its settings, and Kafka's time-outs where it has none.",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH=VALUE",
        help="Over what the files say: cluster.kafka=4.2.1 (may be given again).",
    )
    @wraps(command)
    def given(*, settings: tuple[str, ...], settings_from: Path | None, **others: object) -> int:
        file = () if settings_from is None else (f"cluster.settings_from={settings_from}",)
        return command(settings=(*file, *settings), **others)

    return given


only_cases = click.option(
    "--case",
    "only",
    multiple=True,
    metavar="ID",
    help="Only this case, or the one whose id begins so (may be given again).",
)


def _read_shard(context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, int] | None:
    del context, option
    index, _, count = (text or "").partition("/")
    if text is None:
        return None
    if not index.isdecimal() or not count.isdecimal() or not 1 <= int(index) <= int(count):
        raise click.BadParameter(f"expected I/N such as 1/4, not '{text}'")
    return int(index), int(count)


shard_option = click.option(
    "--shard",
    metavar="I/N",
    callback=_read_shard,
    help="Only the Ith of N shares of the cases: 1/4, on other days or machines 2/4, 3/4, 4/4.",
)


class _Place(click.Path):
    def coerce_path_result(self, value: str | os.PathLike[str]) -> Path:
        return locate(value)


PLACES: Final = _Place()
"""Folders of this machine, or of a store by their URI."""
EXIT_CODES: Final = """\b
Exit codes:
  0    PASS
  1    FAIL: Kafka broke what its configuration forbids to break
  2    INCONCLUSIVE: the evidence does not carry a verdict
  254  bad input: usage, YAML, a missing tool
  255  the harness itself failed, or was interrupted
"""

out_option = click.option(
    "--out",
    type=PLACES,
    default=Path("runs"),
    show_default=True,
    help="Where batches are kept: a folder, or a store (s3://bucket/runs).",
)
keep_data_option = click.option(
    "--keep-data", is_flag=True, help="Keep the brokers' data in the run directories."
)
json_option = click.option(
    "--json",
    "machine",
    is_flag=True,
    help="batch.json and the paths of batch, report and cases on standard output, all else on standard error.",
)


def spark_options(command: Callable[..., int]) -> Callable[..., int]:
    """Where Spark runs: `master`, `remote` and `conf`, which `spark_settings` takes."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark, over spark-defaults.conf (may be given again).",
        ),
        click.option(
            "--remote", metavar="URL", help="Spark Connect, such as sc://host:15002, in place of a master."
        ),
        click.option(
            "--master", metavar="URL", help="Spark master, such as spark://host:7077; local by default."
        ),
    ):
        command = option(command)
    return command


def spark_settings(master: str | None, remote: str | None, conf: Sequence[str]) -> dict[str, str]:
    """What `--conf` said. Raises `BadInput` for what is no setting, and for two places at once."""
    if master and remote:
        raise BadInput("--master or --remote, not both")
    if wrong := [one for one in conf if not one.partition("=")[2] or not one.startswith("spark.")]:
        raise BadInput(f"--conf {wrong[0]}: a setting of Spark is spark.…=…")
    return dict(one.partition("=")[::2] for one in conf)


def soak_options(command: Callable[..., int]) -> Callable[..., int]:
    """How long a soak lasts, and what of it is kept: `soak` and `keep`, which `soak_of` takes."""
    for option in (
        click.option(
            "--keep",
            type=click.IntRange(1),
            metavar="N",
            help="Of a soak only the newest N windows stay on disk when those before them were found clean.",
        ),
        click.option(
            "--soak",
            metavar="DURATION",
            help="One load of so long (6h): what the file says is a window of it, audited while the load goes on.",
        ),
    ):
        command = option(command)
    return command


def soak_of(soak: str | None, keep: int | None) -> Soak | None:
    """What `--soak` and `--keep` said. Raises `BadInput` for what is no duration, and for `--keep` alone."""
    if soak is None:
        if keep is not None:
            raise BadInput("--keep says what stays of a soak: give --soak DURATION too")
        return None
    from ackproof.plan.soaking import Soak

    asked = Soak(soak, keep)
    if asked.seconds <= 0:
        raise BadInput(f"--soak {soak}: give a duration such as 6h")
    return asked


def examples(first: str, second: str, *, codes: bool = False) -> str:
    """The end of a command's help: with `codes` what its exit codes mean, and two calls."""
    return (f"{EXIT_CODES}\n" if codes else "") + f"\b\nExamples:\n  {first}\n  {second}\n"


def batch_with_paths(batch: BatchFile, directory: BatchDir) -> object:
    """Return `batch.json` with the paths of the batch, its report and its cases, as JSON has it."""
    told = batch.model_dump(mode="json")
    told |= {"directory": str(directory.path.absolute()), "report": str(directory.report_html.absolute())}
    for case in told["cases"]:
        case["directory"] = str((directory.path / case["run"]).absolute())
    return told


def from_here(path: Path) -> str:
    """`path` as one would type it: relative where it is below the present folder."""
    here, whole = Path.cwd(), path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
