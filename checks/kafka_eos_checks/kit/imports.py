"""The Python files that modules of the project need: their results hold as long as these files stay the same."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import kafka_eos

PACKAGES = {"kafka_eos": Path(str(kafka_eos.__file__)).parent, "kafka_eos_checks": Path(__file__).parents[1]}
_IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\((?:[^)#]|#.*)*\)|.+)|import (.+))", re.MULTILINE)
_NAME = re.compile(r"(?:^|[,(])\s*([\w.]+)")  # without the other name that is given to it


def needed(modules: Iterable[str]) -> list[Path]:
    """The files of these modules and of all that they import, in functions too.

    Args:
        modules: by their full names; those of other projects are left out.
    """
    found: set[Path] = set()
    waiting = list(modules)
    while waiting:
        path = _file(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(path.read_text(encoding="utf-8"))
    return sorted(found)


def _file(module: str) -> Path | None:
    package, *names = module.split(".")
    return _file_below(PACKAGES[package], tuple(names)) if package in PACKAGES else None


@cache
def _file_below(package: Path, names: tuple[str, ...]) -> Path | None:
    path = package.joinpath(*names)
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def _imported(text: str) -> tuple[str, ...]:
    """The modules that a file names, and what it takes from them, which may be modules too.

    Lines are searched, because parsing a file takes 50 times as long. A line of a text that looks like an import counts
    as one: then a result is computed again that could have been kept.
    """
    found: list[str] = []
    for module, names, modules in _IMPORT.findall(text):
        taken = [name for line in (names or modules).splitlines() for name in _NAME.findall(line.partition("#")[0])]
        found += [module, *(f"{module}.{name}" for name in taken)] if module else taken
    return tuple(found)
