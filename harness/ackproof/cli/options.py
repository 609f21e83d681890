"""Options that several commands share, and functions that check and convert their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import BACKENDS
from ackproof.rundir.storage import locate

if TYPE_CHECKING:
    from ackproof.plan.soaking import Soak
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir

FILES: Final = click.Path(path_type=Path)


def setting_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options `--set` and `--settings-from` to a command. It gets both as the parameter `settings`:
    texts `PATH=VALUE`."""

    @click.option(
        "--settings-from",
        type=FILES,
        help="server.properties of your brokers: use its settings, and Kafka's default time-outs where it sets none.",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH=VALUE",
        help="Override a field of the files, such as cluster.kafka=4.2.1 (repeatable).",
    )
    @wraps(command)
    def call(*, settings: tuple[str, ...], settings_from: Path | None, **others: object) -> int:
        file = () if settings_from is None else (f"cluster.settings_from={settings_from}",)
        return command(settings=(*file, *settings), **others)

    return call


backend_option = click.option(
    "--backend",
    type=click.Choice(list(BACKENDS)),
    help="Where to run, instead of the files' backend.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0), help="Seed of every random choice, instead of the files'."
)
repeat_option = click.option(
    "--repeat", type=click.IntRange(1), help="Repeats of each case, instead of the files'."
)
case_option = click.option(
    "--case",
    "only",
    multiple=True,
    metavar="ID",
    help="Only the case with this id, or with an id that begins like this (repeatable).",
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
    help="Only share I of N of the cases: 1/4 here, and 2/4, 3/4, 4/4 on other days or machines.",
)


class _Place(click.Path):
    def coerce_path_result(self, value: str | os.PathLike[str]) -> Path:
        return locate(value)


PLACES: Final = _Place()
"""Click type for a folder on this machine, or in an object store by URI."""
EXIT_CODES: Final = """\b
Exit codes:
  0    PASS
  1    FAIL: Kafka broke a guarantee of its configuration
  2    INCONCLUSIVE: the evidence is not enough for a verdict
  254  bad input: usage, YAML, a missing tool
  255  the harness itself failed, or was interrupted
"""

out_option = click.option(
    "--out",
    type=PLACES,
    default=Path("runs"),
    show_default=True,
    help="Where batches are written: a folder, or an object store (s3://bucket/runs).",
)
keep_data_option = click.option(
    "--keep-data", is_flag=True, help="Keep the brokers' data in the run directories."
)
json_option = click.option(
    "--json",
    "machine",
    is_flag=True,
    help="Print batch.json with the paths of batch, report and cases on standard output, all else on standard error.",
)


def spark_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options `--master`, `--remote` and `--conf` to a command. It gets them as parameters of these
    names, which `read_spark_settings` checks."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="Spark setting that overrides spark-defaults.conf (repeatable).",
        ),
        click.option(
            "--remote",
            metavar="URL",
            help="Spark Connect server, such as sc://host:15002, instead of a master.",
        ),
        click.option(
            "--master", metavar="URL", help="Spark master, such as spark://host:7077. Default: local."
        ),
    ):
        command = option(command)
    return command


def read_spark_settings(master: str | None, remote: str | None, conf: Sequence[str]) -> dict[str, str]:
    """Return the Spark settings of `--conf` (texts `spark.NAME=VALUE`) by name. Raises `BadInput` for a text of another
    form, and if both `--master` and `--remote` are given."""
    if master and remote:
        raise BadInput("give --master or --remote, not both")
    if wrong := [one for one in conf if not one.partition("=")[2] or not one.startswith("spark.")]:
        raise BadInput(f"--conf {wrong[0]}: not a Spark setting; give spark.NAME=VALUE")
    return dict(one.partition("=")[::2] for one in conf)


def soak_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options `--soak` and `--keep` to a command. It gets them as parameters of these names, which
    `read_soak` checks."""
    for option in (
        click.option(
            "--keep",
            type=click.IntRange(1),
            metavar="N",
            help="With --soak: keep the newest N windows on disk, delete older ones once audited without a finding.",
        ),
        click.option(
            "--soak",
            metavar="DURATION",
            help="One load of this duration, such as 6h, audited window by window. The file describes one window.",
        ),
    ):
        command = option(command)
    return command


def read_soak(soak: str | None, keep: int | None) -> Soak | None:
    """Return the options of a soak, which is one long load that is audited window by window; None without `--soak`.
    `soak`: duration, such as `6h`. `keep`: number of newest windows that stay on disk; None: all. Raises `BadInput` for
    a bad duration, and for `--keep` without `--soak`."""
    if soak is None:
        if keep is not None:
            raise BadInput("--keep needs --soak DURATION")
        return None
    from ackproof.plan.soaking import Soak

    asked = Soak(soak, keep)
    if asked.seconds <= 0:
        raise BadInput(f"--soak {soak}: give a duration such as 6h")
    return asked


def examples(first: str, second: str, *, codes: bool = False) -> str:
    """Return the end of a command's help: two example calls (`first`, `second`), and with `codes` the meaning
    of exit codes."""
    return (f"{EXIT_CODES}\n" if codes else "") + f"\b\nExamples:\n  {first}\n  {second}\n"


def batch_with_paths(batch: BatchFile, directory: BatchDir) -> object:
    """Return the content of `batch.json` as dictionaries and lists for JSON, with absolute paths added. The batch gets
    `directory` and `report`; each case gets `directory`."""
    document = batch.model_dump(mode="json")
    document |= {"directory": str(directory.path.absolute()), "report": str(directory.report_html.absolute())}
    for case in document["cases"]:
        case["directory"] = str((directory.path / case["run"]).absolute())
    return document


def from_here(path: Path) -> str:
    """Return the path as a user would type it: relative if it is below the current folder, else absolute. Links are
    resolved."""
    here, whole = Path.cwd(), path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
