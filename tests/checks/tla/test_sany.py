"""The trees that SANY's output is read into."""

import subprocess
from pathlib import Path

import pytest

from kafka_eos_checks.tla import sany
from kafka_eos_checks.tla.sany import NOWHERE, Expression, UnparsableModule


def test_an_expression_consists_of_itself_its_bounds_and_its_operands() -> None:
    bound, body = (Expression(span=NOWHERE, level=0, operator=name) for name in ("S", "P"))
    every = Expression(span=NOWHERE, level=0, operator="$BoundedForall", operands=(body,), bounds=(bound,))
    assert every.body is body
    assert [part.operator for part in every.walk()] == ["$BoundedForall", "S", "P"]


@pytest.mark.parametrize(("code", "out"), [(1, b"Parse Error "), (0, b"Parse Error "), (1, b"<?xml Parse Error ")])
def test_what_sany_says_of_a_module_that_it_does_not_accept_is_told(
    code: int, out: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], code, out, b"at line 7\xff\n")
    monkeypatch.setattr(sany, "find_java", lambda: "java")
    monkeypatch.setattr(sany, "java_start", lambda *_: ["java"])
    monkeypatch.setattr(sany, "find_jar", lambda: tmp_path / "tla2tools.jar")
    monkeypatch.setattr(subprocess, "run", lambda *_, capture_output, **__: done if capture_output else None)
    with pytest.raises(UnparsableModule, match=r"M.tla: SANY does not accept it\n.*Parse Error at line 7"):
        sany.parse(tmp_path, "M")
