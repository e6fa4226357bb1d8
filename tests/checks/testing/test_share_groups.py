"""Share groups that read committed records only, on a real broker."""

import subprocess
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.brokers import Cluster, java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PROGRAM = Path(__file__).parents[2] / "java" / "ShareGroups.java"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",  # 15 s by default, and the lock 30 s
    "group.share.record.lock.duration.ms": "1000",
}
COMMITTED = ["committed0", "committed1", "committed2"]
LATER = ["later-before0", "later-inside0", "later-after0"]
LEAST = 2  # of group.share.delivery.count.limit, whose default is 5
SECONDS = 12


@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
@pytest.mark.parametrize("limit", [LEAST, 5])
def test_kafkas_share_group_that_begins_inside_an_aborted_batch_spends_deliveries_of_committed_records(
    kafka: str, limit: int, tmp_path: Path
) -> None:
    if not have_jars(kafka):
        pytest.skip(f"the jars of Kafka {kafka} are not there; `make peers` fetches them")
    settings = SETTINGS | {"group.share.delivery.count.limit": str(limit)}
    with Cluster(tmp_path / "kafka", settings=settings, kafka=kafka) as broker:
        program = java_command(str(PROGRAM), f"127.0.0.1:{broker.any_port()}", str(SECONDS), kafka=kafka)
        done = subprocess.run(program, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    given: dict[str, dict[str, str]] = {"before": {}, "inside": {}, "after": {}}
    for group, value, deliveries in map(str.split, done.stdout.splitlines()):
        given[group][value] = deliveries
    assert given["before"] == dict.fromkeys([*COMMITTED, "later-before0"], "1")
    assert given["after"] == dict.fromkeys([*COMMITTED, *LATER], "1")
    inside = given["inside"]
    assert inside.pop("later-inside0") == "1", "it goes on"
    if limit == LEAST:
        assert inside == {}, "committed records are lost to the group"
    else:
        assert inside == dict.fromkeys([*COMMITTED, "later-before0"], "4"), "three of five deliveries reached nobody"
