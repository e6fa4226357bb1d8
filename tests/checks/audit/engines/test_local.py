"""Rows in memory and in temporary files."""

import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from pathlib import Path

import pytest

from kafka_eos_checks.audit.engines import local
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.local import LocalRows
from kafka_eos_checks.audit.quoting import key_of_names, quoted, redacted


@pytest.fixture(params=[False, True], ids=["without a name", "in a folder"])
def rows(request: pytest.FixtureRequest) -> LocalRows:
    made = LocalRows()
    assert not request.param or made.folder
    return made


def test_rows_are_read_in_the_order_in_which_they_were_added_stored_or_not(
    rows: LocalRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SPILL_BYTES", 20)
    for value in range(5):
        rows.add(Row(0, 7, value, 10))
    assert [list(rows.values([0], 7)), rows.keys([0])] == [[0, 1, 2, 3, 4], {7}]
    rows.close()


def test_rows_that_are_stored_after_others_were_read_leave_them_as_they_are(rows: LocalRows) -> None:
    for key in (1, 2, 3):
        rows.add(Row(0, key, f"row {key}", 1))
        rows.store()
        assert list(rows.values([0], 1)) == ["row 1"]
    assert [list(rows.values([0], key)) for key in (1, 2, 3)] == [["row 1"], ["row 2"], ["row 3"]]
    rows.close()


def test_keys_are_those_of_all_rows_stored_or_not(rows: LocalRows) -> None:
    rows.add(Row(0, 1, "stored", 1))
    rows.store()
    for kind, key in ((0, 2), (1, 3)):
        rows.add(Row(kind, key, "in memory", 1))
    assert [rows.keys(kinds) for kinds in ([0], [1], [0, 1])] == [{1, 2}, {3}, {1, 2, 3}]
    rows.close()


def test_the_error_of_a_task_in_another_process_is_raised_where_the_rows_are_asked_for(rows: LocalRows) -> None:
    function = Path(rows.folder) / "function"
    function.write_bytes(pickle.dumps(partial(divmod, 1)))
    task: Future[local.Places | Exception] = Future()
    task.set_result(local._in_worker(str(function), None, (0,), rows.folder))
    with pytest.raises(ZeroDivisionError):
        local._places_of(task)
    rows.close()


def in_evidence(text: str) -> Iterator[Row]:
    yield Row(0, 0, quoted(text))


def test_a_task_in_another_process_redacts_by_the_names_of_this_one(rows: LocalRows) -> None:
    function = Path(rows.folder) / "function"
    function.write_bytes(pickle.dumps(in_evidence))
    with redacted():
        key, name = key_of_names(), quoted("secret")
    places = copy_context().run(local._in_worker, str(function), key, ("secret",), rows.folder)
    assert not isinstance(places, Exception)
    rows.add_stored(places)
    assert list(rows.values([0], 0)) == [name]
    rows.close()
