"""Consume, transform, produce: inputs, outputs and offsets while instances crash, pause and rebalance."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled, Rejected
from kafka_eos.machines.consume_transform_produce import V1, V2, Constants, ConsumeTransformProduce
from kafka_eos.machines.explorer import Exploration, explore
from kafka_eos.machines.group_coordinator import CLASSIC, CONSUMER
from kafka_eos.machines.machine import instances
from kafka_eos_checks.mutants.rules import mutated

FAULTS = frozenset({"abort", "crash", "expire session", "timeout"})


def constants(eos: str = V2, inputs: int = 2, protocol: str = CLASSIC) -> Constants:
    return Constants(
        instances=frozenset("AB"),
        partitions=frozenset("p"),
        transactional_ids=frozenset("p" if eos == V1 else "AB"),
        preferred=Map({"p": "A"}),
        group_protocol=protocol,
        inputs=frozenset(range(1, inputs + 1)),
        eos=eos,
        faults=FAULTS,
        max_faults=1,
    )


def started(eos: str = V2) -> ConsumeTransformProduce:
    """Instance A has read nothing yet, and knows its position."""
    state = ConsumeTransformProduce.initial(constants(eos))
    return state.initialize("A", "p" if eos == V1 else "A").fetch_offset("A", "p")


def taken_over(state: ConsumeTransformProduce) -> ConsumeTransformProduce:
    """The group has given A's partition to B, and A does not know."""
    return state.expire_session("A").join("B").complete_rebalance("B")


def searched(state: ConsumeTransformProduce) -> Exploration[ConsumeTransformProduce]:
    return explore(state, instances(type(state), state.constants))


def found(state: ConsumeTransformProduce) -> dict[int, int]:
    return dict(state.outputs["p"])


def test_an_input_takes_effect_when_output_and_offset_are_published() -> None:
    state = started().process("A", "p").send_offsets("A", "A").commit("A", "A")
    assert (found(state), state.committed["p"]) == ({1: 0, 2: 0}, 0)
    state = state.publish_output("A", "p").publish_offsets("A")
    assert (found(state), state.committed["p"]) == ({1: 1, 2: 0}, 1)
    assert state.transactions["A"].state == "none"


def test_a_crash_before_the_commit_leaves_output_and_offset_as_they_were() -> None:
    state = started().process("A", "p").send_offsets("A", "A").crash("A")
    state = state.time_out("A").publish_offsets("A")
    assert (found(state), state.committed["p"], state.pending["A"]["p"]) == ({1: 0, 2: 0}, 0, -1)


def test_a_crash_after_the_commit_changes_nothing_any_more() -> None:
    state = started().process("A", "p").send_offsets("A", "A").commit("A", "A").crash("A")
    state = state.publish_offsets("A").publish_output("A", "p")
    assert (found(state), state.committed["p"]) == ({1: 1, 2: 0}, 1)


def test_the_group_refuses_offsets_of_a_member_that_it_has_removed() -> None:
    state = taken_over(started().process("A", "p"))
    with pytest.raises(Rejected) as refused:
        state.send_offsets("A", "A")
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    after = state.refuse_offsets("A", "A")
    assert (after.transactions["A"].state, after.processes["A"].generation) == ("none", 0)


def test_the_group_refuses_offsets_of_an_earlier_generation() -> None:
    state = started()
    later = replace(state, group=replace(state.group, generation=2))
    assert later.txn_offset_commit_error("A", 1) is ErrorCode.ILLEGAL_GENERATION
    assert later.txn_offset_commit_error("A", 2) is ErrorCode.NONE


def test_the_group_takes_offsets_that_say_nothing_of_a_member() -> None:
    state = taken_over(started(V1).process("A", "p"))
    assert state.send_offsets("A", "p").pending["p"]["p"] == 1


def test_offsets_are_taken_while_a_rebalance_is_being_prepared() -> None:
    state = started().process("A", "p")
    state = replace(state, group=replace(state.group, state="PREPARING_REBALANCE"))
    assert state.send_offsets("A", "A").pending["A"]["p"] == 1


def test_a_new_owner_gets_no_offset_while_one_is_pending() -> None:
    state = taken_over(started().process("A", "p").send_offsets("A", "A")).initialize("B", "B")
    with pytest.raises(Rejected) as refused:
        state.fetch_offset("B", "p")
    assert refused.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    state = state.commit("A", "A").publish_offsets("A").fetch_offset("B", "p")
    assert state.processes["B"].positions["p"] == 1


def test_offsets_that_were_sent_before_the_rebalance_are_committed_after_it() -> None:
    state = taken_over(started().process("A", "p").send_offsets("A", "A"))
    state = state.commit("A", "A").publish_offsets("A")
    assert state.committed["p"] == 1


def test_version_1_fences_the_former_owner_and_aborts_what_it_left() -> None:
    state = taken_over(started(V1).process("A", "p")).initialize("B", "p")
    assert state.transactions["p"].state == "none"
    for act in (state.process, state.send_offsets, state.commit, state.abort):
        with pytest.raises(NotEnabled):
            act("A", "p")
    assert state.receive_fencing("A", "p").processes["A"].generation == 0


def test_version_1_gives_no_epoch_before_a_decided_transaction_is_published() -> None:
    state = taken_over(started(V1).process("A", "p").send_offsets("A", "p").commit("A", "p"))
    with pytest.raises(Rejected) as refused:
        state.initialize("B", "p")
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    state = state.publish_output("p", "p").publish_offsets("p").initialize("B", "p").fetch_offset("B", "p")
    assert state.processes["B"].positions["p"] == 1


def test_after_an_abort_the_application_reads_the_same_input_again() -> None:
    state = started().process("A", "p").abort("A", "A").fetch_offset("A", "p")
    assert state.processes["A"].positions["p"] == 0


def test_without_the_seek_an_aborted_input_is_skipped() -> None:
    machine = mutated(ConsumeTransformProduce, {"PositionAfterAbort": "NoSeekAfterAbort"})
    state = machine.initial(constants())
    assert isinstance(state, ConsumeTransformProduce)
    state = state.initialize("A", "A").fetch_offset("A", "p").process("A", "p").abort("A", "A")
    state = state.process("A", "p").send_offsets("A", "A").commit("A", "A")
    state = state.publish_output("A", "p").publish_offsets("A")
    assert (found(state), state.committed["p"]) == ({1: 0, 2: 1}, 2)


def test_an_instance_that_has_to_join_gives_its_partitions_up_when_it_aborts() -> None:
    state = taken_over(started().process("A", "p")).abort("A", "A")
    assert (state.processes["A"].assigned, state.faults) == (frozenset(), 1)
    assert state.join("A").group.state == "PREPARING_REBALANCE"


def test_a_member_that_comes_back_gets_the_partition_that_prefers_it() -> None:
    state = taken_over(started())
    assert state.processes["B"].assigned == {"p"}
    state = state.join("A").join("B").complete_rebalance("B")
    assert (state.processes["A"].assigned, state.processes["B"].assigned) == ({"p"}, frozenset())
    assert state.group.generation == 3


def test_faults_are_counted_and_recovery_is_not() -> None:
    state = started().crash("A")
    with pytest.raises(NotEnabled):
        state.crash("B")
    state = state.expire_session("A").restart("A").join("A").join("B").complete_rebalance("A")
    assert (state.faults, state.group.members) == (1, {"A", "B"})


@pytest.mark.parametrize("eos", [V1, V2])
def test_in_no_state_is_an_output_found_twice_or_an_input_skipped(eos: str) -> None:
    search = searched(ConsumeTransformProduce.initial(constants(eos, inputs=1)))
    assert all(state.outputs["p"][1] <= 1 for state in search.states)
    settled = [s for s in search.states if all(t.state == "none" for t in s.transactions.values())]
    assert settled
    assert all(state.outputs["p"][1] == state.committed["p"] for state in settled)


@pytest.mark.parametrize(
    ("eos", "rule", "mutant"),
    [(V2, "TxnOffsetCommitError", "NoGenerationCheck"), (V1, "IsFenced", "NeverFenced")],
)
def test_each_version_finds_an_output_twice_without_its_protection(eos: str, rule: str, mutant: str) -> None:
    machine = mutated(ConsumeTransformProduce, {rule: mutant})
    state = machine.initial(constants(eos, inputs=1))
    assert isinstance(state, ConsumeTransformProduce)
    search = searched(state)
    assert any(state.outputs["p"][1] == 2 for state in search.states)


def in_consumer_group() -> ConsumeTransformProduce:
    """A, a member of a group of KIP-848 like B, has read nothing yet, and knows its position."""
    return ConsumeTransformProduce.initial(constants(protocol=CONSUMER)).initialize("A", "A").fetch_offset("A", "p")


def test_a_member_that_is_removed_is_unknown_and_one_that_joined_again_is_of_another_generation() -> None:
    state = in_consumer_group().process("A", "p").expire_session("A")
    with pytest.raises(Rejected) as refused:
        state.send_offsets("A", "A")
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    state = state.heartbeat("A")
    with pytest.raises(Rejected) as refused:
        state.send_offsets("A", "A")
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    state = state.refuse_offsets("A", "A").learn_assignment("A").fetch_offset("A", "p").process("A", "p")
    assert state.send_offsets("A", "A").pending["A"]["p"] == 1


def test_a_partition_is_given_to_another_member_when_its_owner_has_given_it_up() -> None:
    state = in_consumer_group().expire_session("A").heartbeat("B").learn_assignment("B").heartbeat("A")
    assert state.membership.members["A"].assigned == frozenset()
    state = state.heartbeat("B")
    assert state.membership.members["B"].revoking == {"p"}
    with pytest.raises(NotEnabled):
        state.heartbeat("A")
    state = state.learn_assignment("B").heartbeat("B").heartbeat("A")
    assert (state.membership.members["A"].assigned, state.membership.members["B"].revoking) == ({"p"}, frozenset())


def test_a_member_keeps_its_epoch_until_it_has_given_up_what_it_has_to() -> None:
    state = in_consumer_group().expire_session("A").heartbeat("B").learn_assignment("B").heartbeat("A").heartbeat("B")
    assert state.membership.members["B"].epoch < state.membership.epoch
    state = state.learn_assignment("B").heartbeat("B")
    assert state.membership.members["B"].epoch == state.membership.epoch


def later(state: ConsumeTransformProduce, member: str, **changes: object) -> ConsumeTransformProduce:
    """The group, in which a member has come to another epoch or other partitions."""
    members = state.membership.members
    changed = replace(members[member], **changes)  # type: ignore[arg-type]
    return replace(state, membership=replace(state.membership, members=members.set(member, changed)))


def test_an_older_epoch_is_taken_for_a_partition_that_the_member_has_had_since() -> None:
    state = later(in_consumer_group(), "A", epoch=3)
    assert state.member_epoch_error("A", 1, {"p"}) is ErrorCode.NONE
    assert state.member_epoch_error("A", 4, {"p"}) is ErrorCode.STALE_MEMBER_EPOCH
    assert state.member_epoch_error("A", 2, {"p", "q"}) is ErrorCode.STALE_MEMBER_EPOCH
    assert state.member_epoch_error("A", 3, {"p", "q"}) is ErrorCode.NONE
    given_again = later(state, "A", assignment_epochs=Map({"p": 3}))
    assert given_again.member_epoch_error("A", 2, {"p"}) is ErrorCode.STALE_MEMBER_EPOCH
    giving_up = later(state, "A", assigned=frozenset(), revoking=frozenset("p"))
    assert giving_up.member_epoch_error("A", 2, {"p"}) is ErrorCode.NONE


def test_a_partition_keeps_its_assignment_epoch_until_it_is_given_up() -> None:
    state = in_consumer_group().expire_session("A").heartbeat("B").learn_assignment("B").heartbeat("A").heartbeat("B")
    given, giving_up = state.membership.members["A"], state.membership.members["B"]
    assert (given.assignment_epochs, giving_up.assignment_epochs) == (Map(), Map({"p": 2}))
    state = state.learn_assignment("B").heartbeat("B").heartbeat("A")
    given, given_up = state.membership.members["A"], state.membership.members["B"]
    assert (given.assignment_epochs, given_up.assignment_epochs) == (Map({"p": 3}), Map())


def test_an_instance_is_ended_by_an_error_of_offsets_that_its_producer_does_not_know() -> None:
    machine = mutated(ConsumeTransformProduce, {"ErrorInTransaction": "StaleEpochIsTold"})
    state = machine.initial(constants(protocol=CONSUMER))
    assert isinstance(state, ConsumeTransformProduce)
    state = state.initialize("A", "A").fetch_offset("A", "p").process("A", "p").expire_session("A").heartbeat("A")
    state = state.refuse_offsets("A", "A")
    assert (state.processes["A"].is_up, state.is_open("A")) == (False, True)


def test_a_member_learns_nothing_while_its_transaction_is_open() -> None:
    state = in_consumer_group().process("A", "p").expire_session("A")
    with pytest.raises(NotEnabled):
        state.learn_assignment("A")
    state = state.abort("A", "A").learn_assignment("A")
    assert (state.processes["A"].generation, state.processes["A"].assigned) == (0, frozenset())


def test_a_member_that_was_removed_in_between_fetches_its_position_again() -> None:
    state = in_consumer_group().expire_session("A").heartbeat("A").learn_assignment("A")
    assert (state.processes["A"].assigned, state.processes["A"].positions["p"]) == ({"p"}, -1)


def test_a_classic_group_knows_no_heartbeat_of_a_member_epoch_and_a_consumer_group_no_join() -> None:
    with pytest.raises(NotEnabled):
        started().expire_session("A").heartbeat("A")
    with pytest.raises(NotEnabled):
        in_consumer_group().expire_session("A").join("A")
    assert in_consumer_group().group.members == frozenset()
    assert started().membership.members["A"].epoch == 0


def test_an_instance_whose_consumer_joins_while_it_processes_is_refused_by_its_generation() -> None:
    two = replace(constants(), faults=frozenset({"expire session", "join while processing"}), max_faults=2)
    state = ConsumeTransformProduce.initial(two).initialize("A", "A").fetch_offset("A", "p").process("A", "p")
    state = taken_over(state).join_while_processing("A").join("B").complete_rebalance("B")
    with pytest.raises(Rejected) as refused:
        state.send_offsets("A", "A")
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    assert "A" in state.group.members


@pytest.mark.parametrize("mutant", ["RemovedMemberIsTaken", "StaleEpochIsTaken"])
def test_without_a_check_of_the_member_or_of_its_epoch_offsets_of_a_zombie_are_taken(mutant: str) -> None:
    machine = mutated(ConsumeTransformProduce, {"MemberEpochError": mutant})
    state = machine.initial(constants(protocol=CONSUMER))
    assert isinstance(state, ConsumeTransformProduce)
    state = state.initialize("A", "A").fetch_offset("A", "p").process("A", "p").expire_session("A")
    state = state if mutant == "RemovedMemberIsTaken" else state.heartbeat("A")
    assert state.send_offsets("A", "A").pending["A"]["p"] == 1
