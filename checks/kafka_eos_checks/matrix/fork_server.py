"""A program that forks a pytest for each request, so that what tests import of other projects is imported once.

It runs in the copy of a clone in which mutants are tried, and imports nothing of the project, because each pytest has
to import the mutant. A request is a line of standard input, a JSON object with ``arguments`` of pytest, ``variables``
of the environment, ``said``, the file that gets the output, and ``seconds`` after which pytest is ended. The answer is
a line of standard output: the status as :attr:`subprocess.Popen.returncode` has it, or null if pytest was ended. When
standard input ends, so do this process, its pytest, and all that this has started.
"""

import importlib
import json
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, TextIO

import pytest

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
MEMORY = 4 << 30  # bytes of data that each process of a pytest may have: a mutant may gather them without end
_POLL = 0.005  # seconds
_NO_REWRITING = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # of plugins that are imported already


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer each request; in a forked process, run its pytest and end."""
    while line := requests.readline():
        request = json.loads(line)
        imported = Path(request["said"] + ".imported")
        pid = os.fork()
        if not pid:
            answers.close()  # its end tells the command that this process has ended
            _become(request)
            before = set(sys.modules)
            status = pytest.main([*_NO_REWRITING, *request["arguments"]])
            new = [name for name in sys.modules if name not in before]
            imported.write_text("\n".join(_of_others(new)), encoding="utf-8")
            sys.exit(status)
        print(json.dumps(_status(pid, request["seconds"])), file=answers, flush=True)
        if imported.exists():
            for name in imported.read_text(encoding="utf-8").split():
                with suppress(Exception):  # a module that its package makes on the way
                    importlib.import_module(name)
            imported.unlink()


def _become(request: Mapping[str, Any]) -> None:
    """Make a forked process the one that a request asks for: with a group, output, environment and limit of its own.

    The group ends when standard input does: there is no other request before the answer.
    """
    os.setsid()
    requests = os.dup(0)

    def end() -> None:
        os.read(requests, 1)
        os.killpg(0, signal.SIGKILL)

    Thread(target=end, daemon=True).start()
    with Path(request["said"]).open("w", encoding="utf-8") as said, Path(os.devnull).open(encoding="utf-8") as nothing:
        for fileno, file in enumerate((nothing, said, said)):
            os.dup2(file.fileno(), fileno)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most), most))
    os.environ.update(request["variables"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def _of_others(names: Iterable[str]) -> list[str]:
    """The modules of the standard library and of installed packages, in the order in which they were imported.

    In another order they may not work: ``_asyncio`` before ``asyncio`` has two tables of the tasks that run.
    """
    files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in names}
    return [name for name, file in files.items() if file.startswith(_INSTALLED)]


def _status(pid: int, seconds: float) -> int | None:
    """The exit status of a forked process, None if it has not ended after so many seconds; its group ends with it."""
    limit = monotonic() + seconds
    ended = status = 0
    while not ended and monotonic() < limit:
        sleep(_POLL)
        ended, status = os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if ended:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8") as to_command:
        os.dup2(2, 1)  # what an import prints is no answer
        serve(sys.stdin, to_command)
