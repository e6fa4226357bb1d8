"""The queries of docs/sql.md, run on the cluster that the page names, print what the page shows."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import CLONE

pytestmark = pytest.mark.spark

_GENERATE = re.compile(r"^kafka-eos (lab generate copy .*)$", re.MULTILINE)
_SQL = re.compile(r"^```sql\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_ZONE = "spark.sql.session.timeZone"


class Page(NamedTuple):
    """The cluster that the page names, and the page's queries with their outputs."""

    cluster: Path
    queries: list[tuple[str, str]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Page:
    """The page; the session has its views."""
    text = (CLONE / "docs" / "sql.md").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("sql") / "copy"
    [call] = _GENERATE.findall(text)
    assert cli.main(shlex.split(call.replace(" copy ", f" {shlex.quote(str(folder))} "))) == 0
    (views, _), *queries = _SQL.findall(text)
    for statement in views.replace("CREATE ", "CREATE OR REPLACE ").replace("'copy/", f"'{folder}/").split(";"):
        if statement.strip():
            spark.sql(statement)
    return Page(folder, queries)


def test_every_query_of_the_page_prints_what_the_page_shows(
    page: Page, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(page.queries) == 7
    zone = spark.conf.get(_ZONE)
    spark.conf.set(_ZONE, "UTC")
    try:
        for query, shown in page.queries:
            capsys.readouterr()
            spark.sql(query).show(truncate=False)
            assert capsys.readouterr().out.strip() == shown.strip(), query
    finally:
        spark.conf.set(_ZONE, zone)


def test_the_open_transaction_and_the_offset_that_went_back_are_those_that_were_planted(page: Page, spark: Any) -> None:
    lines = (page.cluster / "planted.jsonl").read_text(encoding="utf-8").splitlines()
    planted = {row["rule"]: (row["topic"], row["partition"], row["offset"]) for row in map(json.loads, lines)}
    [running] = spark.sql(page.queries[0][0]).collect()
    assert (running["topic"], running["partition"], running["first_offset"]) == planted["hanging transaction"]
    [back] = spark.sql(page.queries[-1][0]).collect()
    place = "__consumer_offsets", back["log_partition"], back["log_offset"]
    assert place == planted["committed offset went back"]
