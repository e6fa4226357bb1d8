"""What an extra would bring, said in one line when it is not there."""

import importlib
from types import ModuleType


class MissingExtra(RuntimeError):  # noqa: N818 - named for what is missing
    """A package of an optional extra is not installed."""


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
