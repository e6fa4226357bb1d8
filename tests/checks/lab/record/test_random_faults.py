"""The random campaign without brokers: a seed decides the schedule, and each step does what it says."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.brokers import BrokerFailed
from kafka_eos_checks.lab.record import random_scenarios
from kafka_eos_checks.lab.record.clients import TRANSFER, WORD_COUNT, ClientFailed
from kafka_eos_checks.lab.record.random_faults import (
    APIS,
    GROUP_APIS,
    IDEMPOTENT,
    LONGEST_REST,
    NODES,
    STEPS,
    Act,
    Client,
    Step,
    draw,
    met,
)
from kafka_eos_checks.lab.record.random_scenarios import Player
from kafka_eos_checks.lab.record.stage import SCENARIOS

DRAWN = {seed: draw(seed) for seed in range(200)}


def test_a_seed_decides_the_schedule_and_another_one_decides_otherwise() -> None:
    assert all(draw(seed) == schedule for seed, schedule in DRAWN.items())
    assert all(DRAWN[seed] != DRAWN[seed + 1] for seed in range(199))


def test_every_schedule_is_bounded_and_begins_with_faults_of_requests() -> None:
    for schedule in DRAWN.values():
        assert 3 <= len(schedule.clients) <= 5
        assert STEPS[0] <= len(schedule.steps) <= STEPS[1]
        assert all(0 < step.rest <= LONGEST_REST for step in schedule.steps)
        assert schedule.steps[0].act is Act.FAULTS
        assert all(client.work["timeout_ms"] <= 15_000 for client in schedule.clients)


def test_one_broker_at_a_time_is_down_and_a_frozen_one_is_not_asked_for_anything() -> None:
    asks = {Act.LEAD, Act.LEAD_COORDINATION, Act.REASSIGN, Act.VERSION, Act.COMPACT}
    for schedule in DRAWN.values():
        down: Act | None = None
        for step in schedule.steps:
            if step.act in {Act.CRASH, Act.STOP, Act.FREEZE}:
                assert down is None
                assert step.which in NODES
                down = step.act
            elif step.act is Act.BACK:
                assert down is not None
                down = None
            assert down is not Act.FREEZE or step.act not in asks


def test_steps_name_clients_and_versions_that_there_are_and_faults_of_requests_that_the_proxy_knows() -> None:
    for schedule in DRAWN.values():
        for step in schedule.steps:
            assert not step.act.endswith("client") or step.which < len(schedule.clients)
            assert step.act is not Act.VERSION or step.which in {0, 1, 2}
            assert (step.act is Act.FAULTS) == bool(step.chances) == bool(step.apis)
            assert step.apis <= {*APIS, *GROUP_APIS}
            assert sum(step.chances.values()) < 1


def test_the_seeds_reach_every_act_kind_version_and_number_of_replicas() -> None:
    steps = [step for schedule in DRAWN.values() for step in schedule.steps]
    clients = [client for schedule in DRAWN.values() for client in schedule.clients]
    topics = [topic for schedule in DRAWN.values() for topic in schedule.topics]
    assert {step.act for step in steps} == set(Act)
    assert {kind for step in steps for kind in step.chances} > {"delay", "overtake", "withhold"}
    assert {(client.kind, client.copies) for client in clients} == {
        *((kind, copies) for kind in ("java", "librdkafka") for copies in (False, True)),
        *((kind, True) for kind in (WORD_COUNT, TRANSFER)),
        (IDEMPOTENT, False),
    }
    assert {schedule.version for schedule in DRAWN.values()} == {0, 1, 2}
    assert {len(replicas) for topic in topics for replicas in topic.replicas} == {1, 2, 3}
    configs = {name for topic in topics for name in topic.configs}
    assert {"segment_ms", "retention_bytes", "index_interval_bytes", "min_insync_replicas"} <= configs


def test_what_an_application_reads_again_is_never_deleted() -> None:
    for schedule in DRAWN.values():
        targets = {client.topic for client in schedule.clients if client.copies}
        assert not any("retention_bytes" in topic.configs for topic in schedule.topics if topic.suffix in targets)


# --- the player -------------------------------------------------------------------------------------------------------


class Brokers(dict[int, Any]):
    """Three brokers; the first one leads the only partition."""

    def __init__(self) -> None:
        super().__init__({node: Mock(node=node) for node in NODES})
        self.make_leader, self.wait_ready, self.wait_transaction = Mock(), Mock(), Mock()
        self.controller_port = Mock(return_value=1)
        self.kafka = "4.3.0"
        self.row = {"PartitionIndex": 0, "LeaderId": 1, "IsrNodes": [1, 3], "ReplicaNodes": [3, 1]}
        self.partitions = Mock(return_value=[self.row])


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Player:
    stage: Any = Mock(cluster=Brokers(), seed=1, topics={"s-0": {}})
    stage.name = "s"
    stage.start.side_effect = stage.start_java.side_effect = lambda *_, **__: process()
    stage.start_application.side_effect = stage.start.side_effect
    for name in ("set_transaction_version", "set_configs", "ask"):
        monkeypatch.setattr(random_scenarios, name, Mock())
    monkeypatch.setattr(random_scenarios, "LAST_SECONDS", 0.0)
    clients = tuple(
        Client(f"c{n}", kind, "-0", (), False, {}) for n, kind in enumerate(("java", "librdkafka", TRANSFER))
    )
    return Player(stage, clients, ExitStack(), {client.name: {} for client in clients})


def process() -> Any:
    return nullcontext(Mock(**{"runs.return_value": True}))


def newest(player: Player, client: str) -> Any:
    return player.running[client][-1]


@pytest.mark.parametrize(("act", "away", "back"), [(Act.CRASH, "crash", "restart"), (Act.FREEZE, "freeze", "resume")])
def test_a_broker_that_is_down_or_frozen_comes_back(player: Player, act: Act, away: str, back: str) -> None:
    stage: Any = player.stage
    player.play(Step(0.0, act, 2))
    getattr(stage, away).assert_called_once_with(stage.cluster[2])
    for _ in range(2):
        player.play(Step(0.0, Act.BACK))
    getattr(stage, back).assert_called_once_with(stage.cluster[2])


def test_an_in_sync_replica_leads_instead_and_the_coordinators_partitions_move_in_the_same_way(player: Player) -> None:
    stage: Any = player.stage
    player.play(Step(0.0, Act.LEAD, 7))
    player.play(Step(0.0, Act.LEAD_COORDINATION, 3))
    assert [call.args for call in stage.cluster.make_leader.call_args_list] == [
        *(("s-0", 0, 3), ("__consumer_offsets", 0, 3)),
    ]
    assert stage.new_leader.call_args_list[0].args == ("s-0", stage.cluster[1], 0)
    stage.cluster.row["IsrNodes"] = [1]
    player.play(Step(0.0, Act.LEAD, 7))
    assert stage.cluster.make_leader.call_count == 2


def test_a_partition_moves_to_as_many_brokers_as_it_has(player: Player) -> None:
    player.play(Step(0.0, Act.REASSIGN, 4))
    [call] = random_scenarios.ask.call_args_list  # type: ignore[attr-defined]
    assert call.args[3]["Topics"] == [{"Name": "s-0", "Partitions": [{"PartitionIndex": 0, "Replicas": [2, 3]}]}]


def test_a_replaced_client_runs_on_and_its_successor_has_its_transactional_id(player: Player) -> None:
    stage: Any = player.stage
    for which in (0, 0, 1, 2, 2, 2):
        player.play(Step(0.0, Act.REPLACE_CLIENT, which))
    for start, ids in (
        (stage.start_java, ["s-c0", "s-c0"]),
        (stage.start, ["s-c1"]),
        (stage.start_application, ["s-c20", "s-c21", "s-c20"]),  # two instances of an application run at a time
    ):
        assert [call.kwargs["transactional_id"] for call in start.call_args_list] == ids
    names = [call.args[0] for call in stage.start_application.call_args_list]
    assert names == ["c2-0", "c2-1", "c2-2"]
    assert not any(one.kill.called for ones in player.running.values() for one in ones)


def test_the_newest_process_of_a_client_is_killed_or_frozen_and_woken(player: Player) -> None:
    for which in (0, 0, 1):
        player.play(Step(0.0, Act.REPLACE_CLIENT, which))
    for _ in range(2):
        player.play(Step(0.0, Act.FREEZE_CLIENT, 0))
    player.play(Step(0.0, Act.FREEZE_CLIENT, 1))
    player.play(Step(0.0, Act.KILL_CLIENT, 0))
    newest(player, "c0").freeze.assert_called_once_with()
    newest(player, "c0").kill.assert_called_once_with()
    newest(player, "c0").runs.return_value = False
    player.play(Step(0.0, Act.KILL_CLIENT, 0))
    newest(player, "c0").kill.assert_called_once_with()
    for _ in range(2):
        player.play(Step(0.0, Act.WAKE_CLIENT, 2))
    newest(player, "c0").resume.assert_not_called()
    newest(player, "c1").resume.assert_called_once_with()
    assert not player.running["c0"][0].freeze.called


def test_what_the_cluster_refuses_among_faults_is_told_and_the_play_goes_on(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    random_scenarios.set_configs.side_effect = BrokerFailed("no")  # type: ignore[attr-defined]
    player.tell(Step(0.0, Act.COMPACT))
    assert "compact 0: no" in capsys.readouterr().err


def test_in_the_end_brokers_and_clients_are_back_clients_are_killed_and_transactions_end(player: Player) -> None:
    stage: Any = player.stage
    for step in (Step(0.0, Act.REPLACE_CLIENT, 0), Step(0.0, Act.FREEZE_CLIENT, 0), Step(0.0, Act.STOP, 1)):
        player.play(step)
    stage.cluster.wait_transaction.side_effect = BrokerFailed("it hangs")
    given = [("InitProducerId", "ok", "s-c0"), ("InitProducerId", "fail", "s-c1"), ("EndTxn", "ok", "s-c2")]
    stage.journal.events.return_value = [
        Event(run="r", process="proxy/c", action=action, phase=phase, transactional_id=name)
        for action, phase, name in given
    ]
    player.end()
    stage.restart.assert_called_once_with(stage.cluster[1])
    one = newest(player, "c0")
    assert [call[0] for call in one.mock_calls if call[0] in {"resume", "kill", "wait"}] == ["resume", "kill", "wait"]
    assert [call.args[0] for call in stage.cluster.wait_transaction.call_args_list] == ["s-c0"]


def test_a_reader_that_fails_is_told_and_the_recording_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def readers(*_: str) -> Iterator[None]:
        yield
        raise ClientFailed("read-committed: ended with -11")

    stage: Any = Mock(readers=readers)
    with random_scenarios._reading(stage, ["t"]):
        pass
    assert "readers: read-committed: ended with -11" in capsys.readouterr().err
    with pytest.raises(BrokerFailed), random_scenarios._reading(stage, ["t"]):
        raise BrokerFailed


def test_the_scenario_says_what_it_met() -> None:
    def told(process: str, action: str, phase: str, **columns: Any) -> Event:
        return Event(run="r", process=process, action=action, phase=phase, **columns)

    found = met(
        [
            told("proxy/c", "Produce", "invoke", detail={"fault": "overtake"}),
            told("proxy/c", "Produce", "fail", error=47),
            told("proxy/c", "Fetch", "fail", error=9999),
            *(told("broker-1", "Crash", phase) for phase in ("invoke", "ok")),
            told("c", "Freeze", "ok"),
            *(told("c", "CommitTransaction", phase) for phase in ("invoke", "info", "invoke", "ok")),
        ]
    )
    assert found == {
        "overtake of Produce": 1,
        "Produce: INVALID_PRODUCER_EPOCH": 1,
        "Fetch: 9999": 1,
        "Crash of a broker": 1,
        "Freeze of a client": 1,
        "CommitTransaction info": 1,
        "CommitTransaction ok": 1,
    }
    assert SCENARIOS["random-faults/random-faults"].cluster == "random-faults"


def test_the_version_of_transactions_is_set_where_the_release_has_several(player: Player) -> None:
    cluster: Any = player.stage.cluster
    for kafka, level in (("3.9.1", 2), ("4.3.0", 1), ("4.4.0", 0)):
        cluster.kafka = kafka
        player.play(Step(0.0, Act.VERSION, level))
    set_version: Any = random_scenarios.set_transaction_version
    assert [call.args[1] for call in set_version.call_args_list] == [1, 0]
