"""Counterexamples as pictures."""

import pytest

from kafka_eos.machines import machine
from kafka_eos.machines.application_loop import ApplicationLoop
from kafka_eos.machines.consume_transform_produce import ConsumeTransformProduce
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.epoch_bump import EpochBump
from kafka_eos.machines.external_sink import ExternalSink
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.mirror import Mirror
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.producer_ids import ProducerIds
from kafka_eos.machines.share_partition import SharePartition
from kafka_eos.machines.stateful_processor import StatefulProcessor
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos.machines.transactional_producer import TransactionalProducer
from kafka_eos.machines.transactions import Transactions
from kafka_eos.machines.transfer import Transfer
from kafka_eos_checks.drawing.story_diagram import ACTORS, diagram
from kafka_eos_checks.tla.behaviour import Step


@pytest.mark.parametrize(
    "cls",
    [
        ApplicationLoop,
        PartitionLog,
        IdempotentProducer,
        EpochBump,
        Transactions,
        TransactionCoordinator,
        TransactionalProducer,
        ConsumeTransformProduce,
        Consumer,
        ExternalSink,
        Mirror,
        ProducerIds,
        SharePartition,
        StatefulProcessor,
        Transfer,
    ],
)
def test_every_action_of_a_machine_has_its_row_and_no_other_has(cls):
    assert set(ACTORS[cls.MODULE]) == {action.name for action in machine.actions(cls)}


def test_a_counterexample_shows_its_steps_its_lifelines_and_what_it_violates():
    behaviour = [Step("Init", {}), Step("Send(1)", {}), Step('Crash("a")', {}), Step('ElectLeader("b")', {})]
    picture = diagram("IdempotentProducer", behaviour, "NoLoss")
    for text in ("Send(1)", "replica a", "replica b", "producer", "controller", "violates NoLoss"):
        assert text in picture


def test_a_module_without_rows_and_a_behaviour_without_steps_have_no_picture():
    assert diagram("Delivery", [Step("Init", {}), Step("SendValue(1)", {})], "P") == ""
    assert diagram("PartitionLog", [Step("Init", {})], "P") == ""


@pytest.mark.parametrize("module", sorted(ACTORS))
def test_actions_without_arguments_as_tlc_names_them_for_temporal_properties_are_drawn(module):
    behaviour = [Step("Init", {}), *(Step(name, {}) for name in ACTORS[module])]
    picture = diagram(module, behaviour, "P")
    assert all(f">{name}<" in picture for name in ACTORS[module] if len(name) < 16)
