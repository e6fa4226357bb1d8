"""The parser of the command line, which all subcommands share, and the option that many of them have."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from kafka_eos_checks.kit.nearest import did_you_mean

STANDARD_OUTPUT = Path("-")
_ACCEPTED: dict[Callable[[str], Any], str] = {int: "a whole number", float: "a number"}


class Parser(argparse.ArgumentParser):
    """A parser that refuses an unusable call in one line: what is wrong, what is accepted, and where the help is.

    argparse makes the parsers of subcommands of the same class. A function that is the ``type`` of an argument raises
    ``argparse.ArgumentTypeError`` with the words that say what is accepted.
    """

    def parse_known_args(  # type: ignore[override]  # argparse has overloads for the kind of namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and refuse unknown arguments, for which no caller has a use."""
        words = sys.argv[1:] if args is None else list(args)
        # Before argparse looks for required arguments: a misspelt one would be called missing.
        for option in self._unknown_options(words):
            self.error(f"unknown option {option}{did_you_mean(option, self._option_string_actions)}")
        parsed, left = super().parse_known_args(words, namespace)
        if left:
            kind = "unknown option" if left[0].startswith("-") else "unexpected argument"
            self.error(f"{kind} {shlex.quote(left[0])}")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """Refuse the call; the exit code is 2."""
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')} (see {self.prog} --help)\n")

    def _unknown_options(self, words: Iterable[str]) -> Iterator[str]:
        """The long options that are no option of this parser, nor the beginning of one."""
        for word in words:
            is_option = word.startswith("--")
            if word == "--" or (self._subparsers is not None and not is_option):
                return  # what follows are no options, or those of a subcommand
            name = word.partition("=")[0]
            if is_option and " " not in name and not any(o.startswith(name) for o in self._option_string_actions):
                yield name

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of an argument. Overrides argparse's, which names a Python function as what is accepted."""
        make = self._registry_get("type", action.type, action.type)
        try:
            return make(arg_string)
        except argparse.ArgumentTypeError as error:
            accepted = str(error)
        except (TypeError, ValueError):
            accepted = f"expected {_ACCEPTED.get(make) or make.__name__.strip('_').replace('_', ' ')}"
        return self.error(f"{_name(action)} {shlex.quote(arg_string)}: {accepted}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice. Overrides argparse's, which does not name the nearest one."""
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        near = did_you_mean(str(value), known)
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown command {shlex.quote(value)}{near}")
        self.error(f"{_name(action)} {shlex.quote(str(value))}: expected {_alternatives(known)}{near}")


def at_least_one(text: str) -> int:
    """The ``type`` of an argument that is a number of processes, runs or the like.

    Raises:
        argparse.ArgumentTypeError: the text is no whole number above 0.
    """
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError("expected a whole number, at least 1")
    return int(text)


def above_zero(text: str) -> float:
    """The ``type`` of an argument that is a number of seconds or the like.

    Raises:
        argparse.ArgumentTypeError: the text is no number above 0.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise argparse.ArgumentTypeError("expected a number above 0")
    return number


def _name(action: argparse.Action) -> str:
    """An argument as the help names it."""
    return next(iter(action.option_strings), None) or str(action.metavar or action.dest)


def _alternatives(words: Sequence[str]) -> str:
    """Words as a choice: ``small, full or deep``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def add_json(parser: argparse._ActionsContainer, what: str = "the verdicts") -> None:
    """Add ``--json``; :func:`standard_output` gives ``-`` its meaning."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help=f"write {what}; - writes them to standard output, and everything else to standard error",
    )


@contextmanager
def standard_output(arguments: argparse.Namespace) -> Iterator[None]:
    """Let ``--json -`` write to standard output, where nothing else is written while the block runs.

    The subcommand is given a temporary file in place of ``-``. Its content follows when the block has ended.
    """
    if getattr(arguments, "json", None) != STANDARD_OUTPUT:
        yield
        return
    with TemporaryDirectory(prefix="kafka-eos-") as folder:
        arguments.json = Path(folder, "answer.json")
        with redirect_stdout(sys.stderr):
            yield
        if arguments.json.exists():  # not if the input could not be used
            _print_whole(arguments.json.read_text(encoding="utf-8"))


def _print_whole(text: str) -> None:
    """Print a text to a reader that may have left before its end, as ``head`` does."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Send the rest of standard output nowhere, because its reader has left: Python writes it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the user knows about the moments of logs: ``snapshot``, and ``longest_ms`` of a transaction."""
    parser.add_argument(
        "--snapshot",
        action="store_true",
        help="the logs are of one moment: of stopped brokers, or of a volume's snapshot",
    )
    parser.add_argument(
        "--max-transaction-timeout",
        dest="longest_ms",
        type=_minutes,
        metavar="MINUTES",
        default="15",
        help="the brokers' transaction.max.timeout.ms, in minutes (default 15): no transaction is open for longer",
    )


def _minutes(text: str) -> int:
    """Minutes in milliseconds."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise argparse.ArgumentTypeError("expected minutes above 0")
    return round(minutes * 60_000)
