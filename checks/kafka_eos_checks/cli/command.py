"""The command ``kafka-eos``: look the call up in the table of ``doors.py``, parse it and run it.

A module is imported only when its command is called, so that the light install needs no JVM and no Spark.
"""

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from kafka_eos_checks.cli import doors
from kafka_eos_checks.cli.doors import Command, Group
from kafka_eos_checks.kit.arguments import STANDARD_OUTPUT, Parser, drop_output, standard_output
from kafka_eos_checks.kit.missing import Missing
from kafka_eos_checks.kit.nearest import did_you_mean
from kafka_eos_checks.kit.outputs import Unwritable, check_output

DESCRIPTION = "An executable, machine-checked reference of Apache Kafka's exactly-once semantics."
EPILOG = """Each command has a --help of its own, with examples.

exit codes: 0 all verdicts as expected, 1 a verdict differs, 2 the input or the call cannot be used,
  3 nothing was found, but not everything that is there could be judged (audit, check traces)
"""
PROGRAM = "kafka-eos"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # without a file's name: of standard output


class _Version(argparse.Action):
    """Print the version. It is looked up only here, because that takes as long as everything else in a short call."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata  # noqa: PLC0415

        print(f"{PROGRAM} {metadata.version('kafka-eos')}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; without one, show what there is."""
    is_open = _open_streams()
    words = _spelled_anew(list(sys.argv[1:] if arguments is None else arguments))
    try:
        parser, left = parser_of(words)
        if parser.get_default("run") is None and not left:
            parser.print_help()
            return 2  # nothing was checked, so this is no success
        parsed = parser.parse_args(left)
        _demand_output(parsed, is_open)
        with standard_output(parsed):
            if getattr(parsed, "json", None) is not None:
                check_output(parsed.json, makes_folder=True)
            code = int(parsed.run(parsed))
        sys.stdout.flush()  # flush here, where a reader that has left is no error
    except Missing as missing:
        print(f"{PROGRAM}: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        drop_output()
        return 141
    except Unwritable as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        print(f"{PROGRAM}: the output cannot be written: {error.strerror}", file=sys.stderr)
        drop_output()
        return 2
    else:
        return code


def _open_streams() -> bool:
    """Open closed standard streams to nowhere, as a call with ``>&-`` or a daemon leaves them.

    Otherwise the next file that is opened would get the number of the stream, and what libraries print there. Every
    stream writes what its encoding lacks as escapes, because no character of a topic or value may cost a verdict.

    Returns:
        whether standard output was open.
    """
    is_open = sys.stdout is not None
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        if isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return is_open


def _demand_output(parsed: argparse.Namespace, is_open: bool) -> None:
    if not is_open and getattr(parsed, "json", None) == STANDARD_OUTPUT:
        raise Unwritable("standard output is closed; give --json a file")


def parser_of(words: Sequence[str]) -> tuple[Parser, list[str]]:
    """The parser of the command that the first words call, and the words that are left for it to parse.

    Words that call no command get the parser of the level they end at, which has only help, and no ``run``.
    A word that names no command is refused here: the process ends with exit code 2.
    """
    first, *left = [*words] or [""]
    if not first or first.startswith("-"):
        return _overview(), [*words]
    entry = doors.COMMANDS.get(first)
    if entry is None:
        _overview().error(f"unknown command {first}{_nearest(first, doors.COMMANDS)}")
    if isinstance(entry, Command):
        return _loaded(entry, PROGRAM, first), left
    if not left or left[0].startswith("-"):
        return _commands_of(first, entry, runs=True), left
    command = entry.commands.get(left[0])
    if command is None:
        _commands_of(first, entry).error(f"unknown command {left[0]}{_nearest(left[0], entry.commands)}")
    return _loaded(command, f"{PROGRAM} {first}", left[0]), left[1:]


def _spelled_anew(words: list[str]) -> list[str]:
    """The words in today's spelling; for a former spelling, standard error names today's."""
    now = doors.FORMER.get(words[0]) if words else None
    if now is None:
        return words
    print(f"{PROGRAM} {words[0]} is now {PROGRAM} {now}", file=sys.stderr)
    return [*now.split(), *words[1:]]


def _nearest(word: str, here: Mapping[str, Command | Group]) -> str:
    """The question "did you mean …?" for the nearest command of this level, else for one of another level."""
    elsewhere = doors.FORMER | {call[-1]: " ".join(call) for call in doors.calls() if call[-1] not in here}
    if near := did_you_mean(word, here):
        return near
    near = did_you_mean(word, elsewhere)
    return next((f"; did you mean {PROGRAM} {call}?" for name, call in elsewhere.items() if f" {name}?" in near), "")


def _loaded(command: Command, prefix: str, name: str) -> Parser:
    """The parser of one command."""
    subparsers = Parser(prog=prefix).add_subparsers(prog=prefix)
    importlib.import_module(command.module).add_parser(subparsers, command.line)
    parser = subparsers.choices[name]
    assert isinstance(parser, Parser)
    parser.description = _without_markup(parser.description or "")
    return parser


def _without_markup(docstring: str) -> str:
    """A module's docstring as text for a terminal: code in single backticks, names of modules and functions bare."""
    return re.sub(r":[a-z]+:`~?([^`]+)`", r"\1", docstring).replace("``", "`")


def _overview() -> Parser:
    """The parser of a call without a command."""
    text = [DESCRIPTION]
    for door in doors.DOORS:
        text += ["", f"{door.reader}: {door.line}", *_listing(door.commands), f"  example: {door.example}"]
    parser = _help_only(PROGRAM, "\n".join(text), EPILOG)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    return parser


def _commands_of(name: str, group: Group, *, runs: bool = False) -> Parser:
    """The parser of a group's first word without a command; with ``runs`` it also parses what the word does alone."""
    text = [f"{group.line[0].upper()}{group.line[1:]}.", "", "commands:", *_listing(group.commands)]
    examples = "\n  ".join(["examples:", *group.examples])
    parser = _help_only(f"{PROGRAM} {name}", "\n".join(text), f"{examples}\n\n{EPILOG}")
    if group.alone is None or not runs:
        return parser
    alone = _loaded(group.alone, PROGRAM, name)
    alone.usage, alone.description, alone.epilog = f"{parser.prog} [COMMAND] …", parser.description, parser.epilog
    return alone


def _help_only(prog: str, description: str, epilog: str) -> Parser:
    return Parser(
        prog=prog,
        usage=f"{prog} COMMAND …",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _listing(commands: Mapping[str, Command | Group]) -> Iterator[str]:
    for name, entry in commands.items():
        yield f"  {name:<10} {entry.line}"
        if isinstance(entry, Group):
            yield f"  {'':<10} {', '.join(entry.commands)}"
