"""The documents on the served APIs agree with the server's tables."""

import pytest

from kafka_eos.server.configs import EFFECTIVE
from kafka_eos.server.schemas import NOT_SERVED, REFUSED, SERVED
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.testing import coverage


def test_the_page_is_not_stale() -> None:
    written = (CLONE / coverage.PAGE).read_text(encoding="utf-8")
    assert written == coverage.page(), "`make schemas` writes it anew"


def test_the_help_names_every_api_and_every_configuration_with_an_effect(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert words >= {*SERVED, *REFUSED, *NOT_SERVED, *EFFECTIVE}


def test_every_reason_is_listed_with_its_apis() -> None:
    told = {api: why for why, apis in coverage.not_served() for api in apis}
    assert told == NOT_SERVED
    titles = [line for line in coverage.in_help().splitlines() if not line.startswith("  ")]
    assert titles[2:-1] == [f"not served, as {why}:" for why in dict.fromkeys(NOT_SERVED.values())]


def test_the_command_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("clone")
    (folder / coverage.PAGE).parent.mkdir()
    monkeypatch.setattr(coverage, "CLONE", folder)
    coverage.main()
    assert (folder / coverage.PAGE).read_text(encoding="utf-8") == coverage.page()
    assert capsys.readouterr().out == (
        f"docs/served.md: {len(SERVED)} APIs served, {len(REFUSED)} refused, {len(NOT_SERVED)} not served\n"
    )
