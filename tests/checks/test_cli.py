import argparse
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.cli import SUBCOMMANDS, main, parser_for
from kafka_eos_checks.missing import MissingExtra, need
from kafka_eos_checks.paths import CLONE


def exit_code(*arguments: str) -> int:
    """The exit code, also when argparse leaves by itself."""
    try:
        return main(arguments)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1


def test_help_lists_every_subcommand_with_its_line_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    for name, (_, line) in SUBCOMMANDS.items():
        assert f"{name} " in said
        assert " ".join(line.split()) in said
    assert "exit codes: 0 all verdicts as expected" in said


@pytest.mark.parametrize("subcommand", sorted(SUBCOMMANDS))
def test_the_help_of_a_subcommand_shows_examples_that_it_takes(
    subcommand: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(subcommand, "--help") == 0
    said = capsys.readouterr().out
    assert f"usage: kafka-eos {subcommand}" in said
    assert f"kafka-eos {subcommand}" in said.split("examples:", maxsplit=1)[1]


def parser_of(subcommand: str) -> argparse.ArgumentParser:
    """The parser of a subcommand, with its arguments."""
    [action] = [a for a in parser_for(subcommand)._actions if isinstance(a, argparse._SubParsersAction)]
    parser = action.choices[subcommand]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def examples(help_text: str) -> list[list[str]]:
    """The calls that a help shows, as arguments; what follows two spaces is a remark."""
    shown = [line.strip() for line in help_text.split("examples:", maxsplit=1)[1].splitlines()]
    return [shlex.split(line.split("  ")[0])[1:] for line in shown if line.startswith("kafka-eos ")]


@pytest.mark.parametrize("subcommand", ["", *sorted(SUBCOMMANDS)])
def test_every_example_of_a_help_can_be_parsed(subcommand: str) -> None:
    shown = examples((parser_of(subcommand) if subcommand else parser_for(None)).format_help())
    assert shown
    for arguments in shown:
        assert callable(parser_for(arguments[0]).parse_args(arguments).run)


def test_without_a_subcommand_the_overview_is_shown_and_the_call_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code() == 2
    shown = capsys.readouterr()
    assert exit_code("--help") == 0
    assert shown.out == capsys.readouterr().out
    assert shown.err == ""


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"kafka-eos {project['version']}\n"


@pytest.mark.parametrize("subcommand", sorted(SUBCOMMANDS))
def test_every_subcommand_refuses_an_unknown_option_in_one_line(
    subcommand: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(subcommand, "--wrong") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"kafka-eos {subcommand}: unknown option --wrong")
    assert said.err.endswith(f" (see kafka-eos {subcommand} --help)\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("subcommand", sorted(SUBCOMMANDS))
def test_every_json_option_takes_a_dash_for_standard_output(subcommand: str) -> None:
    for action in parser_of(subcommand)._actions:
        if "--json" in action.option_strings:
            assert action.type is Path
            assert "- writes them to standard output" in str(action.help)


def command(run: Callable[[argparse.Namespace], int]) -> ModuleType:
    """A module with a subcommand that does this."""
    module = ModuleType("command")

    def add_parser(subparsers: Any, help_line: str) -> None:
        subparsers.add_parser("probe", help=help_line).set_defaults(run=run)

    vars(module)["add_parser"] = add_parser
    return module


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[argparse.Namespace], int]], int]:
    def run(action: Callable[[argparse.Namespace], int]) -> int:
        monkeypatch.setitem(sys.modules, "kafka_eos_checks.probe", command(action))
        monkeypatch.setattr(cli, "SUBCOMMANDS", {"probe": ("kafka_eos_checks.probe", "does what the test says")})
        return main(["probe"])

    return run


Probe = Callable[[Callable[[argparse.Namespace], int]], int]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_the_subcommands(probe: Probe, code: int) -> None:
    assert probe(lambda _: code) == code


def test_a_missing_extra_is_said_in_one_line_with_the_remedy(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> int:
        need("no_such_package.part", "spark")
        return 0

    assert probe(run) == 2
    said = capsys.readouterr().err
    assert said == ("kafka-eos: this needs no_such_package.part; install it with: pip install 'kafka-eos[spark]'\n")


def test_an_interrupted_command_has_the_shells_exit_code(probe: Probe) -> None:
    def run(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    assert probe(run) == 130


def test_a_bug_is_not_taken_for_an_unusable_call(probe: Probe) -> None:
    def run(_: argparse.Namespace) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        probe(run)


def test_a_package_that_is_there_is_imported_and_one_that_breaks_on_import_is_no_missing_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert need("json", "spark").__name__ == "json"
    folder = tmp_path_factory.mktemp("packages")
    (folder / "breaks_on_import.py").write_text("import no_such_package_at_all\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        need("breaks_on_import", "spark")
    with pytest.raises(MissingExtra):
        need("no_such_package_at_all", "spark")
