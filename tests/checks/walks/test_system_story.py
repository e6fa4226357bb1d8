"""The diagram of a run shows what is lost, late, refused or out of the ordinary."""

from xml.etree import ElementTree

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.walks.served_application import Application, Ask, To
from kafka_eos_checks.walks.system_story import Story

APPLICATION = Application("process-1", 1, 1)
ASK = Ask(To.TRANSACTIONS, "EndTxn", 1, {"Committed": True, "ProducerEpoch": 3})


def drawn(story: Story, wrong: str = "") -> str:
    picture = story.drawn(wrong)
    if not picture:
        return ""
    return "".join(ElementTree.fromstring(picture).itertext())  # noqa: S314 - our own


@pytest.mark.parametrize("fate", ["", "lose request", "lose answer", "repeat"])
def test_an_answer_is_drawn_if_it_is_lost_or_an_error(fate: str) -> None:
    fine, refused = Story(), Story()
    fine.answered(APPLICATION, ASK, fate, {"ErrorCode": 0})
    refused.answered(APPLICATION, ASK, fate, {"Parts": [{"ErrorCode": int(ErrorCode.PRODUCER_FENCED)}]})
    is_lost = fate == "lose answer"
    assert ("answer to EndTxn(commit)" in drawn(fine)) == is_lost
    assert bool(drawn(fine)) == is_lost
    assert ("EndTxn(commit): PRODUCER_FENCED" in drawn(refused)) != is_lost


@pytest.mark.parametrize(
    ("to", "lane"),
    [
        (To.TRANSACTIONS, "transaction coordinators"),
        (To.GROUPS, "group application"),
        (To.SOURCE, "input-1"),
        (To.LEADER, "output-1"),
    ],
)
def test_a_request_is_drawn_to_the_broker_that_is_asked(to: To, lane: str) -> None:
    story = Story()
    story.asked(APPLICATION, Ask(to, "Any", 1, {}, partition=1), "lose request")
    ends = {
        end for end in ("transaction coordinators", "group application", "input-1", "output-1") if end in drawn(story)
    }
    assert ends == {lane}
