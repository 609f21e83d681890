"""Faults by a user's own commands, which inject, check and heal.

In a cluster that ackproof did not start, only these faults reach the brokers' machines. They work on every backend but
`model`. The witness is the user's own check command, which must have failed before the fault.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import ConfigDict, Field

from ackproof.base.advice import Advice
from ackproof.base.errors import BadInput, FaultNotConfirmed, WaitTimeout
from ackproof.base.processes import Child, RunTag, end_children, spawn
from ackproof.base.units import Duration
from ackproof.experiment.base import Text
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.problems import nearest
from ackproof.experiment.roles import Role, RoleField
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, injects

Argv: TypeAlias = Annotated[tuple[Text, ...], Field(min_length=1, max_length=200)]
CHECK_EVERY_S: Final = 0.25
_TOLD: Final = 2000
"""Number of characters, from the end of a command's output, that the timeline has. All of it is in `commands/`."""


class CommandFault(FaultSpec):
    """A fault that commands of the user inject, check and heal. A command is a list of words. It runs without a shell,
    in the folder in which ackproof was called.

    In a word, `{bootstrap}` (bootstrap servers) and `{nodes}` (ids of the holders of `target`, comma-separated) are
    replaced. The command `looks` (in a file: `check`) must end with a status other than 0 before the fault, and with 0
    once the fault is in force. A check that cannot fail would prove nothing.
    """

    KIND = "command"
    UNPREDICTABLE = "the effect of a command is unknown"
    NOT_SIMULATED = "your commands would act on this machine, not on virtual brokers"
    SUMMARY = "Run a command of yours; your own check command confirms it."
    DONE = "hit by a command"
    HEALING = "run heal"
    HOLD_KEY = "for"
    model_config = ConfigDict(populate_by_name=True)

    inject: Argv = Field(description="Command that injects the fault; it must end with status 0.")
    looks: Argv = Field(
        alias="check",
        description="Command that looks for the fault. Status 0: in effect. Any other: not (yet).",
    )
    heal: Argv = Field(description="Command that heals the fault; it must end with status 0.")
    heal_check: Argv | None = Field(
        None,
        description="Command that looks for the healing. Status 0: healed. "
        "By default check must end with another status again.",
    )
    timeout: Duration = Field(
        30.0, gt=0, le=3600, description="Time limit of each command, and of waiting for a check."
    )
    target: RoleField | None = Field(
        None, title="Target", description="Role that {nodes} stands for, resolved when the fault is due."
    )

    @property
    def targets(self) -> tuple[Role, ...]:
        return () if self.target is None else (self.target,)

    @property
    def commands(self) -> dict[str, tuple[str, ...]]:
        """Return the given commands by their field in the file: `inject`, `check`, `heal`, `heal_check`."""
        every = {"inject": self.inject, "check": self.looks, "heal": self.heal, "heal_check": self.heal_check}
        return {name: words for name, words in every.items() if words}

    @property
    def course(self) -> tuple[str, ...]:
        return tuple(f"{name}: {' '.join(words)}" for name, words in self.commands.items())

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """Report to `say` placeholders that will not be replaced: misspelt ones, such as `{node}` for `{nodes}`, and
        `{nodes}` without a `target`. All other text in braces is accepted, because a shell or a template may need it.
        """
        del spec
        for name, words in self.commands.items():
            for index, word in enumerate(words):
                for found in _BRACES.findall(word):
                    if why := self._unfilled(found):
                        say.report((name, index), why)

    def _unfilled(self, found: str) -> Advice | None:
        """Return the reason if the placeholder `found`, with its braces, is probably a mistake; else None.

        The suggestion is the placeholder that was meant; None for `{nodes}` without a target. Braces that resemble no
        placeholder are ordinary text.
        """
        if found == _NODES and self.target is None:
            role = "name the role, such as target: leader(orders/0)"
            return Advice(f"{_NODES} stands for no node", role)
        meant = _NODES if found[1:-1].lower() in _ALSO_NODES else nearest(found, _FILLED, cutoff=0.75)
        if found in _FILLED or meant is None:
            return None
        return Advice(f"nothing is filled in for {found}", suggestion=meant)


_NODES: Final = "{nodes}"
_ALSO_NODES: Final = frozenset({"broker", "brokers", "leader", "server", "servers", "target"})
_FILLED: Final = ("{bootstrap}", _NODES)
_BRACES: Final = re.compile(r"(?<![${])\{[A-Za-z_]+\}(?!\})")


@dataclass(frozen=True)
class _CommandResult:
    """A command that was run: its words joined by blanks, its exit status and the last 2000 characters (`_TOLD`) of its
    output."""

    words: str
    status: int
    output: str

    def __str__(self) -> str:
        said = f": {self.output}" if self.output else ""
        return f"`{self.words}` ended with status {self.status}{said}"


def require(faults: Iterable[FaultSpec]) -> None:
    """Raise `BadInput` if a program of these faults' commands does not exist on this machine. Call it before anything
    is started."""
    for fault in faults:
        if isinstance(fault, CommandFault):
            for argv in fault.commands.values():
                if shutil.which(argv[0]) is None:
                    raise BadInput(f"fault {fault.number} (command): there is no program {argv[0]!r} here")


@injects(CommandFault)
class CommandInjection(Injection[CommandFault]):
    """Run the commands of one fault, each with a time limit, and wait until its check commands show the effect.

    Raises `FaultNotConfirmed` if the check succeeds before the fault, if `inject` or `heal` fails, or if no check shows
    the change within `timeout`. Also raises it if `heal_check` succeeds while the fault is in force."""

    def __init__(self, fault: CommandFault, aim: Aim, context: FaultContext) -> None:
        if context.tag is None:
            raise FaultNotConfirmed(f"{fault.kind}: there is no place to run commands from")
        super().__init__(fault, aim, context)
        self._tag: RunTag = context.tag
        self._count = 0
        self._begun = False
        self._replace = {
            "{bootstrap}": context.cluster.bootstrap,
            _NODES: ",".join(str(node.id) for node in aim.nodes),
        }

    def inject(self) -> str:
        before = self._run("check", self.fault.looks)
        if before.status == 0:
            raise self.not_confirmed(f"the check says yes before anything was done: {before}")
        self._begun = True
        return self._run_or_fail("inject", self.fault.inject)

    def confirm(self) -> str:
        seen = self._await_check("check", self.fault.looks, yes=True)
        if self.fault.heal_check is not None:
            mended = self._run("heal_check", self.fault.heal_check)
            if mended.status == 0:
                raise self.not_confirmed(f"heal_check says mended while it is broken: {mended}")
        return f"check says yes: {seen}"

    def heal(self) -> str:
        return self._run_or_fail("heal", self.fault.heal) if self._begun else "nothing was done"

    def confirm_healed(self) -> str:
        if not self._begun:
            return "nothing was done"
        if self.fault.heal_check is not None:
            return str(self._await_check("heal_check", self.fault.heal_check, yes=True))
        return str(self._await_check("check", self.fault.looks, yes=False))

    def _run_or_fail(self, name: str, argv: Sequence[str]) -> str:
        ran = self._run(name, argv)
        if ran.status != 0:
            raise self.not_confirmed(f"{name} failed: {ran}")
        return str(ran)

    def _await_check(self, name: str, argv: Sequence[str], *, yes: bool) -> _CommandResult:
        return self.wait_for_good(
            partial(self._run, name, argv),
            lambda ran: (ran.status == 0) is yes,
            f"{name} to say {'yes' if yes else 'no'}",
            self.fault.timeout,
            interval_s=CHECK_EVERY_S,
            to_the_end=True,
        )

    def _run(self, name: str, argv: Sequence[str]) -> _CommandResult:
        """Run a command, and return its words, exit status and output. `name`: its field in the file, for
        messages and for the file below `commands/` that gets the output. Raises `FaultNotConfirmed` if it
        cannot start, or exceeds its time limit and is killed."""
        words = list(argv)
        for field, value in self._replace.items():
            words = [word.replace(field, value) for word in words]
        folder = self._tag.case_dir / "commands"
        folder.mkdir(parents=True, exist_ok=True)
        self._count += 1
        output = folder / f"fault-{self.fault.number}-{self._count:03d}-{name}.log"
        try:
            child = spawn(words, run=self._tag, role=f"command-{name}", cwd=Path.cwd(), stdout=output)
        except OSError as error:
            raise self.not_confirmed(f"{name}: {words[0]}: {error.strerror or error}") from error
        try:
            status = child.wait(self.fault.timeout)
        except WaitTimeout as error:
            raise self.not_confirmed(
                f"{name} took more than {self.fault.timeout:g} s and was killed: {_text(output)}"
            ) from error
        finally:
            _end(child)
        return _CommandResult(" ".join(words), status, _text(output))


def _end(child: Child) -> None:
    """Kill the processes that are left of a command's process group, and wait for the command's end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
        end_children(lambda found: _group_of(found.pid) == child.pid)
    child.wait(10.0)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _text(output: Path) -> str:
    try:
        return output.read_text(encoding="utf-8", errors="replace")[-_TOLD:].strip()
    except OSError:
        return ""
