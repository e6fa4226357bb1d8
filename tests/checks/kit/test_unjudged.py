"""The exit code of a check that could not judge everything, and the option that allows it."""

import argparse
from dataclasses import replace

import pytest

from kafka_eos_checks.kit.unjudged import EVERY_REASON, add_allow_unjudged, exit_code
from kafka_eos_checks.kit.verdict import Verdict

GOOD = Verdict(check="replay", name="gap", expected="0 findings", found="0 findings", ok=True)
BAD = replace(GOOD, ok=False)
UNJUDGED = replace(GOOD, unknown=2, unjudged_for={"no-log": 1, "too-old": 1})
EMPTY = replace(GOOD, unjudged="there are no batches to look at")
RECENT = replace(GOOD, unjudged="all 2 are too recent", recent=2)
NAMELESS = replace(GOOD, unknown=1)


@pytest.mark.parametrize(
    ("verdicts", "allowed", "code"),
    [
        ([GOOD], "", 0),
        ([GOOD, BAD], "", 1),
        ([UNJUDGED, BAD], "no-log,too-old", 1),
        ([GOOD, UNJUDGED], "", 3),
        ([UNJUDGED], "no-log", 3),
        ([UNJUDGED], "no-log, too-old", 0),
        ([UNJUDGED, NAMELESS], "no-log,too-old", 3),
        ([GOOD, EMPTY], "", 0),
        ([EMPTY, EMPTY], "", 3),
        ([EMPTY], "no-log,too-old", 3),
        ([], "", 3),
        ([EMPTY, RECENT], "", 0),
        ([EMPTY, UNJUDGED], "no-log,too-old", 0),
    ],
)
def test_what_is_not_judged_is_an_exit_code_of_its_own_unless_its_reasons_are_allowed(
    verdicts: list[Verdict], allowed: str, code: int
) -> None:
    parser = argparse.ArgumentParser()
    add_allow_unjudged(parser, ["no-log", "too-old"])
    given = parser.parse_args(["--allow-unjudged", allowed] if allowed else []).allow_unjudged
    assert exit_code(verdicts, given) == code


def test_without_a_reason_every_reason_is_allowed_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_allow_unjudged(parser, ["too-old", "no-log"])
    every = parser.parse_args(["--allow-unjudged"]).allow_unjudged
    assert every == EVERY_REASON
    assert exit_code([UNJUDGED, NAMELESS], every) == exit_code([EMPTY], every) == 0
    with pytest.raises(SystemExit):
        parser.parse_args(["--allow-unjudged", "no-logs"])
    assert "no reason 'no-logs'; there are no-log, too-old" in capsys.readouterr().err
