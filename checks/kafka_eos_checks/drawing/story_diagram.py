"""A counterexample as a sequence diagram, with an arrow or a box for each action.

The table ``ACTORS`` says who acts on whom; ``{0}`` stands for an action's first argument, and so on.
"""

import re
from collections.abc import Sequence

from kafka_eos_checks.drawing.sequence_diagram import Kind, Role, Violation, from_story
from kafka_eos_checks.drawing.sequence_diagram import Step as Arrow
from kafka_eos_checks.tla.behaviour import Step

CLIENT, COORDINATOR, CONTROLLER, GROUP = "producer", "coordinator", "controller", "group coordinator"
APPLICATION, CONSUMER, TASK = "application", "consumer", "task {0}"
REPLICA, INSTANCE, WRITER = "replica {0}", "instance {0}", "producer {0}"

UNKNOWN = "?"
MOST_PLACES = 3  # no row of the table looks further than an action's third argument

# module -> action -> (who acts, on whom or "", how it is drawn)
ACTORS: dict[str, dict[str, tuple[str, str, Kind]]] = {
    "PartitionLog": {
        "AppendBatch": (CLIENT, "leader", Kind.MESSAGE),
        "AcknowledgeDuplicate": ("leader", CLIENT, Kind.REPLY),
        "RefuseBatch": ("leader", CLIENT, Kind.REFUSED),
        "FailAppend": ("leader", CLIENT, Kind.REFUSED),
        "TakeSnapshot": ("leader", "", Kind.EVENT),
        "Restart": ("leader", "", Kind.RESTART),
        "ExpireProducer": ("leader", "", Kind.EVENT),
    },
    "Leader": {
        "StartVerification": ("leader", COORDINATOR, Kind.MESSAGE),
        "RefuseVerification": ("leader", CLIENT, Kind.REFUSED),
        "AppendBatch": (CLIENT, "leader", Kind.MESSAGE),
        "AcknowledgeDuplicate": ("leader", CLIENT, Kind.REPLY),
        "RefuseBatch": ("leader", CLIENT, Kind.REFUSED),
        "AppendUnidentified": (CLIENT, "leader", Kind.MESSAGE),
        "AppendMarker": (COORDINATOR, "leader", Kind.MESSAGE),
        "RefuseMarker": ("leader", COORDINATOR, Kind.REFUSED),
        "ElectLeader": ("leader", "", Kind.RESTART),
        "ExpireProducer": ("leader", "", Kind.EVENT),
    },
    "IdempotentProducer": {
        "AllocateProducerId": (COORDINATOR, CLIENT, Kind.REPLY),
        "Send": (CLIENT, "partition", Kind.MESSAGE),
        "Resend": (CLIENT, "partition", Kind.MESSAGE),
        "AppendBatch": ("partition", "", Kind.EVENT),
        "AcknowledgeDuplicate": ("partition", "", Kind.EVENT),
        "RefuseBatch": ("partition", "", Kind.EVENT),
        "ReceiveAcknowledgement": ("partition", CLIENT, Kind.REPLY),
        "ReceiveError": ("partition", CLIENT, Kind.REFUSED),
        "Expire": (CLIENT, "", Kind.EVENT),
        "RestartProducer": (CLIENT, "", Kind.RESTART),
        "ExpireProducer": ("partition", "", Kind.EVENT),
        "AdvanceHighWatermark": ("partition", "", Kind.EVENT),
        "Replicate": ("partition", REPLICA, Kind.MESSAGE),
        "TruncateFollower": (REPLICA, "", Kind.EVENT),
        "ShrinkIsr": ("partition", "", Kind.EVENT),
        "ExpandIsr": ("partition", "", Kind.EVENT),
        "Crash": (REPLICA, "", Kind.CRASH),
        "LoseUnflushed": (REPLICA, "", Kind.CRASH),
        "Restart": (REPLICA, "", Kind.RESTART),
        "TakeSnapshot": (REPLICA, "", Kind.EVENT),
        "ElectLeader": (CONTROLLER, REPLICA, Kind.MESSAGE),
        "FenceReplica": (CONTROLLER, "", Kind.EVENT),
        "ElectUncleanLeader": (CONTROLLER, REPLICA, Kind.MESSAGE),
    },
    "Transactions": {
        "Initialize": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "AddPartition": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Produce": (INSTANCE, "partition {1}", Kind.MESSAGE),
        "Expire": (INSTANCE, "", Kind.EVENT),
        "End": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Upgrade": (INSTANCE, "", Kind.EVENT),
        "Crash": (INSTANCE, "", Kind.CRASH),
        "ElectLeader": (CONTROLLER, "partition {0}", Kind.MESSAGE),
        "Receive": (INSTANCE, "", Kind.EVENT),
        "HandleInit": (COORDINATOR, INSTANCE, Kind.REPLY),
        "HandleAdd": (COORDINATOR, INSTANCE, Kind.REPLY),
        "HandleEnd": (COORDINATOR, INSTANCE, Kind.REPLY),
        "TimeOut": (COORDINATOR, "", Kind.EVENT),
        "SendMarker": (COORDINATOR, "partition {0}", Kind.MESSAGE),
        "FindNoLeader": (COORDINATOR, "partition {0}", Kind.REFUSED),
        "CompleteTransaction": (COORDINATOR, "", Kind.EVENT),
        "Failover": (COORDINATOR, "", Kind.RESTART),
        "StartVerification": ("partition {2}", COORDINATOR, Kind.MESSAGE),
        "Verify": (COORDINATOR, "partition {2}", Kind.REPLY),
        "VerifyByFormer": ("former coordinator", "partition {2}", Kind.REPLY),
        "AbortByAdmin": ("operator", "partition {0}", Kind.MESSAGE),
        "AppendVerified": ("partition {2}", INSTANCE, Kind.REPLY),
        "AppendUnverified": ("partition {2}", INSTANCE, Kind.REPLY),
        "HandleMarker": ("partition {0}", COORDINATOR, Kind.REPLY),
        "RepeatMarker": ("partition {0}", COORDINATOR, Kind.REPLY),
    },
    "Consumer": {
        "AppendBatch": (WRITER, "leader", Kind.MESSAGE),
        "AppendMarker": (COORDINATOR, "leader", Kind.MESSAGE),
        "FailIndexEntry": (COORDINATOR, "leader", Kind.REFUSED),
        "AdvanceHighWatermark": ("leader", "", Kind.EVENT),
        "ElectLeader": (CONTROLLER, "leader", Kind.MESSAGE),
        "ExpireProducer": ("leader", "", Kind.EVENT),
        "Clean": ("leader", "", Kind.EVENT),
        "FetchCommitted": ("leader", "reader", Kind.REPLY),
        "FetchUncommitted": ("leader", "reader of all", Kind.REPLY),
        "FetchAndHold": ("leader", "reader that holds back", Kind.REPLY),
    },
    "TransactionCoordinator": {
        "HandleInitProducerId": ("client", COORDINATOR, Kind.MESSAGE),
        "HandleAddPartition": ("client", COORDINATOR, Kind.MESSAGE),
        "HandleEndTxn": ("client", COORDINATOR, Kind.MESSAGE),
        "TimeOut": (COORDINATOR, "", Kind.EVENT),
        "AbortFenced": (COORDINATOR, "", Kind.EVENT),
        "ExpireTransactionalId": (COORDINATOR, "", Kind.EVENT),
        "WriteMarker": (COORDINATOR, "partition {0}", Kind.MESSAGE),
        "FindNoLeader": (COORDINATOR, "partition {0}", Kind.REFUSED),
        "CompleteTransaction": (COORDINATOR, "", Kind.EVENT),
        "AppendIsReplicated": ("log", COORDINATOR, Kind.REPLY),
        "AppendTimesOut": ("log", COORDINATOR, Kind.REFUSED),
        "ReplicateTail": ("log", "", Kind.EVENT),
        "Failover": (COORDINATOR, "", Kind.RESTART),
    },
    "EpochBump": {
        "RequestBump": (CLIENT, COORDINATOR, Kind.MESSAGE),
        "RepeatBump": (CLIENT, COORDINATOR, Kind.MESSAGE),
        "HandleBump": (COORDINATOR, "", Kind.EVENT),
        "ReceiveBump": (COORDINATOR, CLIENT, Kind.REPLY),
        "ReceiveFencing": (COORDINATOR, CLIENT, Kind.REFUSED),
        "AnotherInstanceAsks": ("another instance", COORDINATOR, Kind.MESSAGE),
    },
    "TransactionalOffsets": {
        "AddOffsets": (CLIENT, COORDINATOR, Kind.MESSAGE),
        "SendOffsets": (CLIENT, "", Kind.EVENT),
        "ResendOffsets": (CLIENT, "", Kind.EVENT),
        "StoreOffsets": (CLIENT, GROUP, Kind.MESSAGE),
        "AcknowledgeOffsets": (CLIENT, GROUP, Kind.MESSAGE),
        "RefuseOffsets": (CLIENT, GROUP, Kind.REFUSED),
        "ReceiveAnswer": (GROUP, CLIENT, Kind.REPLY),
        "End": (CLIENT, COORDINATOR, Kind.MESSAGE),
        "WriteMarker": (COORDINATOR, GROUP, Kind.MESSAGE),
        "ApplyMarker": (GROUP, "", Kind.EVENT),
        "Complete": (GROUP, COORDINATOR, Kind.REPLY),
        "Replicate": (GROUP, "", Kind.EVENT),
        "FailOver": (GROUP, "", Kind.RESTART),
        "FetchOffset": (GROUP, "consumer", Kind.REPLY),
        "FetchFromFormer": ("broker that was replaced", "consumer", Kind.REPLY),
    },
    "ProducerIds": {
        "RequestBlock": ("broker {0}", CONTROLLER, Kind.MESSAGE),
        "AllocateBlock": (CONTROLLER, "", Kind.EVENT),
        "CommitBlock": (CONTROLLER, "", Kind.EVENT),
        "AnswerRequest": (CONTROLLER, "", Kind.EVENT),
        "ReceiveBlock": (CONTROLLER, "broker {0}", Kind.REPLY),
        "RefuseBlock": (CONTROLLER, "broker {0}", Kind.REFUSED),
        "LoseAnswer": (CONTROLLER, "broker {0}", Kind.REFUSED),
        "TakeBlock": ("broker {0}", "", Kind.EVENT),
        "GiveProducerId": ("broker {0}", "producer", Kind.REPLY),
        "ChangeController": (CONTROLLER, "", Kind.RESTART),
        "RestartBroker": ("broker {0}", "", Kind.RESTART),
    },
    "SharePartition": {
        "Acquire": ("leader", "member {0}", Kind.REPLY),
        "AcquireForNobody": ("leader", "member {0}", Kind.REFUSED),
        "Acknowledge": ("member {0}", "leader", Kind.MESSAGE),
        "AcknowledgeLate": ("member {0}", "leader", Kind.REFUSED),
        "ReleaseAcquiredRecords": ("member {0}", "leader", Kind.CRASH),
        "TimeOutLock": ("leader", "", Kind.EVENT),
    },
    "Mirror": {
        "Produce": ("source", "", Kind.EVENT),
        "Delete": ("source", "", Kind.EVENT),
        "Initialize": (TASK, "target", Kind.MESSAGE),
        "Rewind": (TASK, "", Kind.EVENT),
        "Copy": ("source", TASK, Kind.REPLY),
        "Commit": (TASK, "target", Kind.MESSAGE),
        "CommitOffset": (TASK, "source", Kind.MESSAGE),
        "LearnFencing": ("target", TASK, Kind.REFUSED),
        "Crash": (TASK, "", Kind.CRASH),
    },
    "TransactionalProducer": {
        "InitTransactions": (APPLICATION, CLIENT, Kind.MESSAGE),
        "BeginTransaction": (APPLICATION, CLIENT, Kind.MESSAGE),
        "Send": (APPLICATION, CLIENT, Kind.MESSAGE),
        "FailSend": (CLIENT, APPLICATION, Kind.REFUSED),
        "SendOffsets": (APPLICATION, CLIENT, Kind.MESSAGE),
        "CommitTransaction": (APPLICATION, CLIENT, Kind.MESSAGE),
        "AbortTransaction": (APPLICATION, CLIENT, Kind.MESSAGE),
        "RepeatCall": (APPLICATION, CLIENT, Kind.MESSAGE),
        "TimeOutCall": (CLIENT, APPLICATION, Kind.REFUSED),
        "EndCall": (CLIENT, APPLICATION, Kind.REPLY),
        "FindCoordinator": (CLIENT, "broker", Kind.MESSAGE),
        "SendRequest": (CLIENT, COORDINATOR, Kind.MESSAGE),
        "SkipEnd": (CLIENT, "", Kind.EVENT),
        "TerminateRequest": (CLIENT, "", Kind.EVENT),
        "SendBatch": (CLIENT, "partition {0}", Kind.MESSAGE),
        "DropBatches": (CLIENT, "", Kind.EVENT),
        "StartOver": (CLIENT, "", Kind.EVENT),
        "ReceiveCoordinator": ("broker", CLIENT, Kind.REPLY),
        "ReceiveProducerId": (COORDINATOR, CLIENT, Kind.REPLY),
        "ReceivePartitionsAdded": (COORDINATOR, CLIENT, Kind.REPLY),
        "ReceiveOffsetsAdded": (COORDINATOR, CLIENT, Kind.REPLY),
        "ReceiveOffsetsCommitted": (GROUP, CLIENT, Kind.REPLY),
        "ReceiveEnd": (COORDINATOR, CLIENT, Kind.REPLY),
        "AcknowledgeBatch": ("partition {0}", CLIENT, Kind.REPLY),
        "RetryRequest": (COORDINATOR, CLIENT, Kind.REFUSED),
        "LoseConnection": (CLIENT, "", Kind.EVENT),
        "FailTransaction": (COORDINATOR, CLIENT, Kind.REFUSED),
        "RefuseInitialization": (COORDINATOR, CLIENT, Kind.REFUSED),
        "FailProducer": (COORDINATOR, CLIENT, Kind.REFUSED),
        "RetryBatch": ("partition {0}", CLIENT, Kind.REFUSED),
        "FailBatch": ("partition {0}", CLIENT, Kind.REFUSED),
        "FailProducerByBatch": ("partition {0}", CLIENT, Kind.REFUSED),
        "ExpireBatch": (CLIENT, "", Kind.EVENT),
        "Upgrade": ("operator", "", Kind.EVENT),
        "RefuseFormerTopic": ("broker", CLIENT, Kind.REFUSED),
        "RecreateTopic": ("operator", "", Kind.EVENT),
    },
    "ApplicationLoop": {
        "Arrive": ("topic", "", Kind.EVENT),
        "Poll": ("topic", APPLICATION, Kind.REPLY),
        "Crash": (APPLICATION, "", Kind.CRASH),
        "Restart": (APPLICATION, COORDINATOR, Kind.RESTART),
        "Process": (APPLICATION, "topic", Kind.MESSAGE),
        "CommitOffset": (APPLICATION, COORDINATOR, Kind.MESSAGE),
        "Send": (APPLICATION, "topic", Kind.MESSAGE),
        "FailSend": ("topic", APPLICATION, Kind.REFUSED),
        "AskToCommit": (APPLICATION, COORDINATOR, Kind.MESSAGE),
        "LearnCommit": (COORDINATOR, APPLICATION, Kind.REPLY),
        "LoseAnswer": (APPLICATION, "", Kind.EVENT),
        "LearnFencing": (COORDINATOR, APPLICATION, Kind.REFUSED),
        "RetryCommit": (APPLICATION, COORDINATOR, Kind.MESSAGE),
        "Abort": (APPLICATION, COORDINATOR, Kind.MESSAGE),
        "Close": (APPLICATION, "", Kind.EVENT),
        "CommitTransaction": (COORDINATOR, "topic", Kind.MESSAGE),
        "TimeOut": (COORDINATOR, "", Kind.EVENT),
    },
    "ExternalSink": {
        "Arrive": ("topic", "", Kind.EVENT),
        "Update": (CONSUMER, "sink", Kind.MESSAGE),
        "CommitOffset": (CONSUMER, "topic", Kind.MESSAGE),
        "UpdateWithOffset": (CONSUMER, "sink", Kind.MESSAGE),
        "GoOn": ("topic", CONSUMER, Kind.REPLY),
        "Crash": (CONSUMER, "", Kind.CRASH),
        "Restart": (CONSUMER, "", Kind.RESTART),
        "LoseAnswer": (CONSUMER, "sink", Kind.MESSAGE),
        "LoseCall": (CONSUMER, "", Kind.REFUSED),
        "CallAgain": (CONSUMER, "", Kind.EVENT),
        "GiveUp": (CONSUMER, "", Kind.EVENT),
        "Publish": ("relay", "sink", Kind.MESSAGE),
        "RemoveRow": ("relay", "", Kind.EVENT),
        "RestartRelay": ("relay", "", Kind.RESTART),
    },
    "Transfer": {
        "Initialize": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Fetch": ("partition p7", INSTANCE, Kind.REPLY),
        "Debit": (INSTANCE, "partition p0", Kind.MESSAGE),
        "Credit": (INSTANCE, "partition p1", Kind.MESSAGE),
        "SendOffset": (INSTANCE, "partition p7", Kind.MESSAGE),
        "Commit": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Abort": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "LearnFencing": (COORDINATOR, INSTANCE, Kind.REFUSED),
        "Crash": (INSTANCE, "", Kind.CRASH),
        "WriteMarker": (COORDINATOR, "partition {0}", Kind.MESSAGE),
    },
    "StatefulProcessor": {
        "Initialize": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Restore": ("partition changelog", INSTANCE, Kind.REPLY),
        "Start": (INSTANCE, "", Kind.EVENT),
        "Process": (INSTANCE, "partition changelog", Kind.MESSAGE),
        "Commit": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Abort": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "LearnFencing": (COORDINATOR, INSTANCE, Kind.REFUSED),
        "Crash": (INSTANCE, "", Kind.CRASH),
    },
    "ConsumeTransformProduce": {
        "Initialize": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "FetchOffset": (GROUP, INSTANCE, Kind.REPLY),
        "Process": (INSTANCE, "partition {1}", Kind.MESSAGE),
        "SendOffsets": (INSTANCE, GROUP, Kind.MESSAGE),
        "RefuseOffsets": (GROUP, INSTANCE, Kind.REFUSED),
        "Commit": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "Abort": (INSTANCE, COORDINATOR, Kind.MESSAGE),
        "ReceiveFencing": (COORDINATOR, INSTANCE, Kind.REFUSED),
        "Join": (INSTANCE, GROUP, Kind.MESSAGE),
        "JoinWhileProcessing": (INSTANCE, GROUP, Kind.MESSAGE),
        "LearnAssignment": (GROUP, INSTANCE, Kind.REPLY),
        "Heartbeat": (INSTANCE, GROUP, Kind.MESSAGE),
        "Crash": (INSTANCE, "", Kind.CRASH),
        "Restart": (INSTANCE, "", Kind.RESTART),
        "ExpireSession": (GROUP, INSTANCE, Kind.REFUSED),
        "LeaveAndReturn": (INSTANCE, GROUP, Kind.MESSAGE),
        "CompleteRebalance": (GROUP, INSTANCE, Kind.REPLY),
        "TimeOut": (COORDINATOR, "", Kind.EVENT),
        "PublishOutput": (COORDINATOR, "partition {1}", Kind.MESSAGE),
        "PublishOffsets": (COORDINATOR, GROUP, Kind.MESSAGE),
    },
}
_ROLES = {
    "producer": Role.CLIENT,
    "another instance": Role.CLIENT,
    "instance": Role.CLIENT,
    "client": Role.CLIENT,
    "log": Role.BROKER,
    "reader": Role.CLIENT,
    "coordinator": Role.COORDINATOR,
    "former coordinator": Role.COORDINATOR,
    "group coordinator": Role.COORDINATOR,
    "operator": Role.CLIENT,
    "controller": Role.COORDINATOR,
    "broker": Role.BROKER,
    "leader": Role.PARTITION,
    "partition": Role.PARTITION,
    "replica": Role.BROKER,
    "topic": Role.PARTITION,
    "application": Role.CLIENT,
    "source": Role.BROKER,
    "target": Role.BROKER,
    "task": Role.CLIENT,
    "consumer": Role.CLIENT,
    "member": Role.CLIENT,
    "relay": Role.CLIENT,
    "sink": Role.BROKER,
}
_CALL = re.compile(r"(\w+)(?:\((.*)\))?$")


def diagram(module: str, behaviour: Sequence[Step], violated: str) -> str:
    """The picture of a counterexample, or "" for a module that the table does not know.

    Args:
        module: the module of the actions.
        behaviour: the states, the first one being the initial state.
        violated: the property that the last state violates.
    """
    actors = ACTORS.get(module)
    steps = behaviour[1:]
    if actors is None or not steps:
        return ""
    arrows = [_arrow(actors, step.action) for step in steps]
    names = {name for arrow in arrows for name in (arrow.source, arrow.target) if name}
    roles = {name: _ROLES[name if name in _ROLES else name.split()[0]] for name in names}
    return from_story(arrows, Violation(len(arrows) - 1, f"violates {violated}"), roles)


def _arrow(actors: dict[str, tuple[str, str, Kind]], call: str) -> Arrow:
    """The drawing of a step. An action that the table does not know is drawn as the client's own.

    TLC names no arguments where a temporal property is violated; lifelines are called "replica ?" then.
    """
    found = _CALL.match(call)
    name = found[1] if found else call
    arguments = [word.strip().strip('"') for word in (found[2] or "").split(",")] if found else []
    source, target, kind = actors.get(name, ("producer", "", Kind.EVENT))
    known = [word for word in arguments if word] + [UNKNOWN] * MOST_PLACES
    return Arrow(source.format(*known), target.format(*known), call, kind)
