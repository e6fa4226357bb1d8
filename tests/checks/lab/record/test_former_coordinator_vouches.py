"""A transaction coordinator that was replaced and does not know it, on real brokers: it verifies a late batch.

A debugger keeps two brokers, the former coordinator and the partition's leader, from learning what the controller has
decided, as a network that is cut between them and the controller does. They go on with everything else.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_eos.formats.transaction_log import TOPIC as TRANSACTIONS
from kafka_eos_checks.brokers.brokers import Cluster, free_ports
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST

from .held_threads import TOPIC, TRANSACTIONAL_ID, Client, for_a_while, held, java_with_agent, need_kafka, wait_until

STUCK_SECONDS = 5.0
LEARNS = "in org.apache.kafka.image.loader.MetadataLoader.maybePublishMetadata"


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
def test_a_former_coordinator_verifies_a_late_batch_and_its_transaction_hangs(kafka: str, tmp_path: Path) -> None:
    """Of four brokers the partition's leader has no copy of the coordinator's log, so the new coordinator has two."""
    need_kafka(kafka)
    settings = {"replica.lag.time.max.ms": "3000"}  # the new coordinator writes once the former one is out of sync
    features = {"transaction.version": 1}
    cluster = Cluster(tmp_path / "c", size=4, features=features, settings=settings, kafka=kafka)
    agents = dict(zip((broker.node for broker in cluster.brokers), free_ports(4), strict=True))
    for broker in cluster.brokers:
        broker.java = java_with_agent(agents[broker.node])
    with cluster, ExitStack() as holding:
        number, row = cluster.coordinator(TRANSACTIONAL_ID)
        former = row["LeaderId"]
        new = next(node for node in row["ReplicaNodes"] if node != former)
        [leader] = {broker.node for broker in cluster.brokers} - set(row["ReplicaNodes"])
        cluster.create_topic(TOPIC, replicas=[[leader]])
        client = Client(cluster[former], cluster[leader])
        client.add_partition()
        client.produce()

        for node in (former, leader):
            holding.enter_context(held(agents[node], LEARNS))
        cluster.make_leader(TRANSACTIONS, number, new)
        client.coordinator = cluster[new]
        client.abort()
        assert (client.end_for(0), client.end_for(1)) == (2, 2), "a record and a marker, and nothing is open"
        client.produce()
        holding.close()

        wait_until(lambda: cluster.partitions(TRANSACTIONS, cluster[leader].port)[number]["LeaderId"] == new)
        for _ in for_a_while(STUCK_SECONDS):
            assert (client.end_for(0), client.end_for(1)) == (3, 2), "readers stop at the late batch"
        assert client.state() == "CompleteAbort", "the coordinator has nothing to end"
