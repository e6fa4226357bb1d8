"""Rows in memory and in temporary files."""

import pytest

from kafka_eos_checks.audit.engines import local
from kafka_eos_checks.audit.engines.local import LocalRows, Row


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
