"""The commands `ackproof predict` and `ackproof explore`: options and output only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from ackproof.cli.options import FILES, case_option, examples, setting_options
from ackproof_model.force.command import Forcing, force_options, forced

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof.experiment.case import Case
    from ackproof.rundir.layout import CaseDir
    from ackproof.rundir.model import PredictionFile

INCONCLUSIVE = 2


def _newest_line() -> str:
    from ackproof.experiment.kafka import LINES  # pydantic: too heavy for `ackproof --help`

    return str(LINES[-1])


_NO_REDUCTIONS = click.option(
    "--no-reductions", is_flag=True, help="Search each state and each step for itself: a check, and slower."
)


@click.command(
    epilog=examples(
        "ackproof predict first.yaml --story lost", "ackproof predict runs/latest --no-reductions"
    )
)
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True, type=FILES)
@setting_options
@case_option
@click.option("--story", multiple=True, metavar="CLASS", help="Tell the shortest way to this class.")
@click.option(
    "--max-states",
    type=click.IntRange(1),
    help="How many states of each model are looked at per case; more turn some unknown classes into answers.",
)
@_NO_REDUCTIONS
@click.option("--json", "machine", is_flag=True, help="All answers and stories as JSON on standard output.")
@force_options
def predict(
    files: tuple[Path, ...],
    settings: tuple[str, ...],
    only: tuple[str, ...],
    story: tuple[str, ...],
    max_states: int | None,
    no_reductions: bool,
    machine: bool,
    forcing: Forcing | None,
) -> int:
    """Predict, before anything runs, which anomaly classes are possible, impossible or unknown in each case. For a RUN
    (a case or a batch on disk): with the faults that it showed, as for its verdict. Nothing is written there.

    Exit code 254 if an expectation demands to see an impossible class. With --force the counterexamples of --story are
    forced on real brokers. The exit code is then the greatest of the codes of `ackproof force` for these. An impossible
    class counts as 0, a class without a counterexample as 2."""
    from ackproof.base.errors import BadInput
    from ackproof.console import Console
    from ackproof.experiment.problems import unknown_name
    from ackproof.judge.demands import impossible_demands
    from ackproof.judge.retention import may_remove
    from ackproof.run.options import BatchOptions, plan_cases, stored_runs
    from ackproof.rundir.anomalies import Anomaly
    from ackproof_model.predict.answers import USUAL_STATES, ask_ahead
    from ackproof_model.predict.prediction import (
        FURTHER_GROUP_STATES,
        SearchOptions,
        predict_case,
        predict_run,
        scopes_of,
    )
    from ackproof_reference.explore.scope import ALL, NO_REDUCTIONS

    for name in story:
        if name not in list(Anomaly):
            raise BadInput(
                unknown_name(f"--story: unknown class '{name}'", name, list(Anomaly), "there are:")
            )
    if forcing and not story:
        raise BadInput("--force forces the stories of --story; say which class")
    runs = tuple(path for path in files if path.is_dir())
    if runs and (settings or forcing or len(runs) < len(files)):
        raise BadInput(f"{runs[0]} is a run: give runs alone, without --set and --force, or experiment files")
    console = Console(machine=machine)
    asked: list[tuple[Case, CaseDir | None]]
    if runs:
        asked = [(case, run) for run, case in stored_runs(runs, only)]
    else:
        cases = [case for _, case in plan_cases(BatchOptions(files, only=only, settings=settings))]
        asked = [(case, None) for case in cases if only or case.repeat == 1]
    told: list[tuple[str, PredictionFile]] = []
    wrong: list[str] = []
    with console.show_progress("exploring small worlds") as tell:
        reductions = NO_REDUCTIONS if no_reductions else ALL
        options = SearchOptions(
            max_states or USUAL_STATES, reductions, group_states=max_states or FURTHER_GROUP_STATES
        )
        scopes = scopes_of((case for case, run in asked if run is None), options)
        for done, of in ask_ahead(scopes, max_states=options.max_states):
            tell(f"{done} of {of} small worlds explored")
        for case, run in asked:
            if run is not None:
                title = f"{case.experiment.name}: {case.id}" if len(runs) == 1 else str(run.path)
                told.append((title, predict_run(case, run, max_states=max_states, reductions=reductions)))
                continue
            name = case.id.rpartition("#")[0]
            title = case.experiment.name if name == "case" else name
            told.append((title, prediction := predict_case(case, options)))
            texts = impossible_demands(prediction, case.experiment.expect, removable=may_remove(case))
            wrong += [f"{title}: {text}" for text in texts]
    if machine:
        console.document(
            [
                {
                    "case": case.id,
                    **({} if run is None else {"run": str(run.path)}),
                    **one.model_dump(mode="json"),
                }
                for (case, run), (_, one) in zip(asked, told, strict=True)
            ]
        )
    else:
        _matrix(console, told)
        _stories(console, told, story)
    if wrong:
        raise BadInput("\n".join(wrong))
    if not forcing:
        return 0
    return max([_forced(console, case, name, max_states, forcing) for case, _ in asked for name in story])


def _forced(console: Console, case: Case, anomaly: str, max_states: int | None, forcing: Forcing) -> int:
    """Force the counterexample for an anomaly class in a case on real brokers, print what happens, and return the exit
    code.

    0: the class is impossible. 2: no counterexample was found. Otherwise the code of `force.command.forced`.
    `max_states`: limit of the search, None: the usual one.

    Raises `BadInput` as `forced` does. Raises it, too, if the case runs a build that is no release, and the option
    `--kafka` is not given."""
    from ackproof.base.errors import BadInput
    from ackproof_model.force.story import IMPOSSIBLE, story_of

    console.line(f"{case.id}: {anomaly}")
    found = story_of(case, anomaly, max_states)
    if isinstance(found, str):
        console.line(f"    nothing to force: {found}")
        return 0 if found == IMPOSSIBLE else INCONCLUSIVE
    story, rules = found
    build = case.experiment.cluster.kafka
    if forcing.kafka is None and not build.is_release:
        raise BadInput(
            f"--force takes a release, and the case runs {build}: give --kafka {build.version}, and run the file "
            "that is written then with --set cluster.kafka={…}"
        )
    return forced(story, rules, console, replace(forcing, kafka=forcing.kafka or build.version))


def _matrix(console: Console, told: Sequence[tuple[str, PredictionFile]]) -> None:
    from ackproof.rundir.anomalies import TABLE
    from ackproof.rundir.anomaly_terms import RuledBy

    plain = [row for row in TABLE.values() if not row.transactional]
    never = [row.name for row in plain if row.always_forbidden]
    shown = [
        row.name
        for rule in (RuledBy.LOSS, RuledBy.RETRIES, RuledBy.ORDER)
        for row in plain
        if row.ruled_by is rule
    ]
    rows = [
        (
            title,
            *(found.chance.value if (found := one.find_class(name)) else "not predicted" for name in shown),
        )
        for title, one in told
    ]
    whole = [("case", *shown), *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    if sum(widths) + 2 * len(shown) > console.rich.width:
        whole = []
        for title, *answers in rows:  # a table of broken lines is no table
            console.line(title)
            for said in dict.fromkeys(answers):
                names = ", ".join(name for name, answer in zip(shown, answers, strict=True) if answer == said)
                console.lines(wrap(f"  {said}: {names}", console.rich.width, subsequent_indent="    "))
    for row in whole:
        console.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    console.line("")
    console.line(f"Impossible in every case: {', '.join(never)}.")
    notes: dict[str, None] = {}
    for title, one in told:
        size = f"{one.scope or 'not explored'}; rules of Kafka {one.rules}, {one.states} states"
        reductions = "" if one.reductions is None else f", reductions: {', '.join(one.reductions) or 'none'}"
        notes[f"{title}: {size}{reductions}"] = None
        notes.update((f"    counted: {fault}", None) for fault in one.faults)
        notes.update((f"    made smaller: {text}", None) for text in one.clamped)
        notes.update((f"    not predicted: {text}", None) for text in one.not_predicted)
    console.lines(notes)
    _groups(console, told)


def _groups(console: Console, told: Sequence[tuple[str, PredictionFile]]) -> None:
    """Print for each consumer group its possible and unknown classes with their reasons, and the names of its
    impossible classes. `told`: title and prediction of each case."""
    for title, one in told:
        for group in dict.fromkeys(answer.group for answer in one.groups):
            answers = [answer for answer in one.groups if answer.group == group]
            console.lines(["", f"{title}: group {group}"])
            for answer in answers:
                if answer.chance is not answer.chance.IMPOSSIBLE:
                    text = f"  {answer.chance}: {answer.anomaly}: {answer.why}"
                    console.lines(wrap(text, console.rich.width, subsequent_indent="    "))
            never = [answer.anomaly for answer in answers if answer.chance is answer.chance.IMPOSSIBLE]
            text = f"  impossible: {', '.join(never)}" if never else ""
            console.lines(wrap(text, console.rich.width, subsequent_indent="    "))


def _stories(console: Console, told: Sequence[tuple[str, PredictionFile]], wanted: Sequence[str]) -> None:
    from ackproof.rundir.anomalies import GROUP_CLASSES

    for anomaly in wanted:
        if anomaly in GROUP_CLASSES:
            _group_stories(console, told, anomaly)
            continue
        alike: dict[tuple[str, ...], list[str]] = {}
        for title, one in told:
            found = one.find_class(anomaly)
            lines = (
                ("not predicted",) if found is None else (found.chance.value, *(found.story or (found.why,)))
            )
            alike.setdefault(lines, []).append(title)
        for said, titles in alike.items():
            console.line("")
            console.line(f"{anomaly} is {said[0]} with {'; '.join(titles)}")
            console.lines(f"    {line}" for line in said[1:])


def _group_stories(console: Console, told: Sequence[tuple[str, PredictionFile]], anomaly: str) -> None:
    for title, one in told:
        for answer in one.groups:
            if answer.anomaly == anomaly:
                text = f"{anomaly} is {answer.chance} in group {answer.group} with {title}: {answer.why}"
                console.lines(["", text])
                console.lines(f"    {number:3}. {step}" for number, step in enumerate(answer.steps, 1))


@click.command(
    epilog=examples(
        "ackproof explore --without 'strict minimum ISR' --html story.html",
        "ackproof explore --of quorum --without 'durable log'",
    )
)
@click.option(
    "--of",
    "protocol",
    type=click.Choice(["kafka", "transactions", "quorum", "pacifica", "zookeeper"]),
    default="kafka",
    show_default=True,
    help="Whose world: a partition of Kafka, its transactions, a majority quorum (as KRaft's), PacificA, or the race "
    "of brokers for the controller's place in ZooKeeper.",
)
@click.option(
    "--rules", "version", default=_newest_line, show_default="newest", help="Release, such as 4.1 or 3.9-zk."
)
@click.option("--without", multiple=True, metavar="NAME", help="Take a protection away (may be given again).")
@click.option(
    "--scope",
    "words",
    help="How large a world, and what goes wrong in it: brokers, records, acks, min_insync, unclean_election, "
    "kills, power_losses, clean_stops, cuts, shrinks, lost, preferred, hand_overs, unclean, retries, …; of a quorum "
    "servers, elections, crashes, entries; of PacificA replicas, suspicions, entries; of ZooKeeper brokers, expiries, "
    "decisions.  [default: brokers=3,records=1,kills=1; of others as their page says]",
)
@click.option(
    "--find", multiple=True, help="A class to look for.  [default: lost; of ZooKeeper: overwritten]"
)
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option(
    "--max-memory", type=click.IntRange(1), default=2048, show_default=True, help="Stop at so many MiB."
)
@click.option(
    "--save", type=FILES, help="Go on with the search in this file; what is left open is kept there."
)
@_NO_REDUCTIONS
@click.option("--html", type=FILES, help="Write the story with its sequence diagram as a page of its own.")
@click.option("--json", "machine", is_flag=True, help="What was found, as JSON on standard output.")
@force_options
def explore(
    protocol: str,
    version: str,
    without: tuple[str, ...],
    words: str | None,
    find: tuple[str, ...],
    max_seconds: float | None,
    max_memory: int,
    save: Path | None,
    no_reductions: bool,
    html: Path | None,
    machine: bool,
    forcing: Forcing | None,
) -> int:
    """Search all interleavings of a small model, and print the shortest counterexample for each class of --find.

    Exit code 0 if there is an answer (a counterexample, or none exists), 2 if a limit left it open. With --force each
    counterexample is also forced on real brokers. The exit code is then the greatest of the search's own code and those
    of `ackproof force`."""
    from ackproof.console import Console
    from ackproof.rundir.document import write_atomically
    from ackproof_model.explore import PROTOCOLS, USUAL
    from ackproof_model.explore import explore as search
    from ackproof_model.explore import kafka as of_kafka
    from ackproof_model.force.experiment import Ground
    from ackproof_model.force.story import KAFKA, Story
    from ackproof_reports.story import Tale, explored_title, story_page

    console = Console(machine=machine)
    chosen = click.get_current_context().get_parameter_source("version")
    for_kafka = protocol == KAFKA
    if not for_kafka and (forcing or chosen is click.core.ParameterSource.COMMANDLINE):
        raise click.UsageError("--rules and --force speak of a partition of Kafka; leave out --of")
    if forcing and no_reductions:
        raise click.UsageError("--force walks the steps of a reduced search; leave out --no-reductions")
    world = (
        of_kafka(version, without, words or USUAL, reduced=not no_reductions)
        if for_kafka
        else PROTOCOLS[protocol].world(words or "", without)
    )
    if forcing:
        Ground.from_rules(version, forcing.kafka)
    find = find or world.classes[:1]
    with console.show_progress("searching") as tell:
        result = search(
            world,
            find,
            max_seconds=max_seconds,
            max_bytes=max_memory << 20,
            saved=save,
            watch=lambda now: tell(f"{now.states} states, depth {now.depth}, {now.rate:.0f} a second"),
        )
    rules, words = world.rules, world.words
    state = "all" if result.exhausted else "not all"
    rate = result.states / result.seconds if result.seconds else 0
    size = f"{result.states} states, {state} there are, in {result.seconds:.1f} s ({rate:.0f} a second)"
    open_ends = "impossible in this scope" if result.exhausted else "unknown: a limit was met"
    if machine:
        console.document(
            {
                "of": protocol,
                "rules": version if for_kafka else "",
                "without": list(without),
                "scope": words,
                "states": result.states,
                "seconds": round(result.seconds, 3),
                "exhausted": result.exhausted,
                "found": {
                    one.anomaly: {"text": one.text, "steps": [step.model_dump() for step in one.steps]}
                    for one in result.found
                },
                "missing": list(result.missing),
            }
        )
    else:
        console.line(f"{rules}: {words}")
        for one in result.found:
            console.line("")
            console.lines(one.story)
        console.lines([f"{name}: {open_ends}" for name in result.missing])
        console.line(size)
    if html is not None:
        tales = [Tale(one.anomaly, one.text, one.steps) for one in result.found]
        missing = [f"{name}: {open_ends}" for name in result.missing]
        title = explored_title(rules, tales, result.missing, whole=result.exhausted)
        write_atomically(html, story_page(title, [f"Looked at: {words}.", *missing, size], tales))
    code = INCONCLUSIVE if result.missing and not result.exhausted else 0
    if forcing and world.scope:
        for one in result.found:
            story = Story(one.anomaly, one.text, world.scope, one.way)
            code = max(code, forced(story, version, console, forcing))
    return code
