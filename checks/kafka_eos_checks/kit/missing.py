"""Errors for a missing extra or a missing clone, which name the remedy in one line."""

import importlib
import os
import shutil
from pathlib import Path
from types import ModuleType

from kafka_eos_checks.kit.paths import is_clone


class Missing(RuntimeError):  # noqa: N818 - named for what is missing
    """Something that a command needs is not here; the message says what it is and how to get it."""


class MissingExtra(Missing):
    """A package of an optional extra is not installed."""


class MissingClone(Missing):
    """A file is needed that only a clone of the repository has."""


def need(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say in one line which extra has it.

    Raises:
        MissingExtra: when the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name.split(".", maxsplit=1)[0]):
            raise
        raise MissingExtra(f"this needs {module}; install it with: pip install 'kafka-eos[{extra}]'") from None


def find_java() -> str:
    """The program ``java``: of ``JAVA_HOME``, else of the path.

    Raises:
        MissingExtra: when there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=str(Path(home) / "bin")) if home else None) or shutil.which("java")
    if java is None:
        raise MissingExtra("this needs Java 17 or later: install a JDK, or set JAVA_HOME")
    return java


def need_clone(what: str) -> None:
    """Refuse to go on without ``what``: files that the wheel does not carry.

    Raises:
        MissingClone: when this package is installed from a wheel.
    """
    if not is_clone():
        raise MissingClone(
            f"this needs {what}, which only a clone of the repository has; clone it, run `make setup` in it, and "
            "repeat the command there as .venv/bin/kafka-eos"
        )
