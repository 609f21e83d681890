"""The help of each command ends with two examples, which the command's own parser accepts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ackproof.cli.main import main

ROOT = Path(__file__).parents[2]


def _commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context := click.Context(command)):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, (*words, name))


COMMANDS = dict(_commands(main, ("ackproof",)))


def _examples(words: tuple[str, ...]) -> list[str]:
    """Return the examples in a command's help, as a terminal shows them."""
    command = COMMANDS[words]
    shown = command.get_help(click.Context(command, info_name=" ".join(words)))
    return re.findall(r"^ +(ackproof .*)$", shown.partition("Examples:\n")[2], re.MULTILINE)


def _parse(command: click.Command, words: list[str]) -> None:
    """Parse the words as `command` does, down to the subcommand. Raises `click.UsageError` for wrong words."""
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(click.Context(command), words)
        assert inner is not None
        _parse(inner, rest)
    else:
        command.make_context("it", list(words))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_example_is_a_call_that_there_is(words: tuple[str, ...]) -> None:
    found = _examples(words)
    assert len(found) == 2
    assert len(set(found)) == 2
    for example in found:
        assert len(example) < 80
        said = shlex.split(re.split(r" [|>] ", example)[0])
        assert tuple(said[: len(words)]) == words
        _parse(main, said[1:])
        for word in said:
            assert not word.startswith("experiments/") or (ROOT / word).exists()


def test_what_is_no_call_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        _parse(main, ["run", "x.yaml", "--sed", "3"])
    with pytest.raises(click.UsageError):
        _parse(main, ["image", "bild"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    """The completion that docs/commands.md describes: the script for the shell, and an answer to the shell."""
    ask = [sys.executable, "-c", "from ackproof.cli.main import entry; entry()"]

    def asked(instruction: str, **more: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "_ACKPROOF_COMPLETE": f"{shell}_{instruction}", **more}
        done = subprocess.run(ask, env=env, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout

    assert f"_ACKPROOF_COMPLETE={shell}_complete" in asked("source")
    line = {"COMP_WORDS": "ackproof run --ba", "COMP_CWORD": "--ba" if shell == "fish" else "2"}
    assert "--backend" in asked("complete", **line)
