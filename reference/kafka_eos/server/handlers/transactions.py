"""Producer ids and transactions, for clients and for operators."""

import re
from collections.abc import Mapping

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2, TransactionState
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.consumer_groups import by_topic
from kafka_eos.server.followers import is_pattern
from kafka_eos.server.handlers.request import (
    Request,
    transaction_error,
)
from kafka_eos.wire.protocol import Message

STATE_NAMES: Mapping[TransactionState, str] = {
    state: camel_case(state.name.lower(), capital=True) for state in TransactionState
}
_STATES = {name: state for state, name in STATE_NAMES.items()}


def init_producer_id(cluster: Cluster, request: Request) -> Message:
    """Give a producer id and epoch."""
    row, coordinators = request.row, cluster.transactions
    name = row["TransactionalId"]
    nobody = {"ProducerId": -1, "ProducerEpoch": -1}
    if name:
        error = transaction_error(cluster, request, name)
        limit = cluster.settings.limits.transactional_ids
        if error is ErrorCode.NONE and name not in coordinators.known and len(coordinators.known) >= limit:
            error = ErrorCode.POLICY_VIOLATION
        if error is not ErrorCode.NONE:
            return {"ErrorCode": error, **nobody}
    asked = row.get("ProducerId", -1), row.get("ProducerEpoch", -1)
    answer = coordinators.init_producer_id(name, row["TransactionTimeoutMs"], *asked, cluster.now)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and request.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error, "ProducerId": answer.producer_id, "ProducerEpoch": answer.epoch}


def add_partitions_to_txn(cluster: Cluster, request: Request) -> Message:
    """Add partitions to a transaction, or, from version 4 on, to several, or verify them."""
    row = request.row
    if request.version < 4:
        topics = row["V3AndBelowTopics"]
        given = row["V3AndBelowTransactionalId"], row["V3AndBelowProducerId"], row["V3AndBelowProducerEpoch"]
        return {"ResultsByTopicV3AndBelow": _add_partitions(cluster, request, given, topics, verify_only=False)}
    return {
        "ResultsByTransaction": [
            {
                "TransactionalId": each["TransactionalId"],
                "TopicResults": _add_partitions(
                    cluster,
                    request,
                    (each["TransactionalId"], each["ProducerId"], each["ProducerEpoch"]),
                    each["Topics"],
                    each["VerifyOnly"],
                ),
            }
            for each in row["Transactions"]
        ]
    }


def _add_partitions(
    cluster: Cluster, request: Request, given: tuple[str, int, int], topics: list[Message], verify_only: bool
) -> list[Message]:
    """If one partition does not exist, the whole request fails.    Kafka: KafkaApis.handleAddPartitionsToTxnRequest."""
    name, producer_id, epoch = given
    asked = [(topic["Name"], number) for topic in topics for number in topic["Partitions"]]
    lacking = {key for key in asked if isinstance(cluster.find(*key), ErrorCode)}
    errors = dict.fromkeys(asked, transaction_error(cluster, request, name))
    if lacking:
        errors = {
            key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key in lacking else ErrorCode.OPERATION_NOT_ATTEMPTED
            for key in asked
        }
    elif not any(errors.values()):
        coordinators, partitions = cluster.transactions, [f"{topic}-{number}" for topic, number in asked]
        if verify_only:
            found = [coordinators.verify(name, producer_id, epoch, partition) for partition in partitions]
        else:
            # From version 4 on only brokers send it, for a batch of a client that follows version 2.
            version = TRANSACTION_VERSION_2 if request.version >= 4 else 1
            error = coordinators.add_partitions(name, producer_id, epoch, partitions, version, cluster.now)
            if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            found = [error] * len(partitions)
        errors = dict(zip(asked, found, strict=True))
    return [
        {
            "Name": topic["Name"],
            "ResultsByPartition": [
                {"PartitionIndex": number, "PartitionErrorCode": errors[topic["Name"], number]}
                for number in topic["Partitions"]
            ],
        }
        for topic in topics
    ]


def add_offsets_to_txn(cluster: Cluster, request: Request) -> Message:
    """Add the partition that holds a group's offsets to a transaction."""
    row = request.row
    name, producer_id, epoch = row["TransactionalId"], row["ProducerId"], row["ProducerEpoch"]
    error = transaction_error(cluster, request, name)
    if error is ErrorCode.NONE:
        partition = cluster.offsets_partition(row["GroupId"]).name
        error = cluster.transactions.add_partitions(name, producer_id, epoch, [partition], 1, cluster.now)
    if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error}


def end_txn(cluster: Cluster, request: Request) -> Message:
    """End a transaction: commit or abort it."""
    row = request.row
    name = row["TransactionalId"]
    error = transaction_error(cluster, request, name)
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    asked = name, row["ProducerId"], row["ProducerEpoch"], row["Committed"]
    answer = cluster.transactions.end(*asked, request.transaction_version, cluster.now)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error, "ProducerId": answer.producer_id, "ProducerEpoch": answer.epoch}


def write_txn_markers(cluster: Cluster, request: Request) -> Message:
    """Write markers, as a coordinator asks for or an operator who ends a hanging transaction."""
    rows = []
    for marker in request.row["Markers"]:
        given = (
            marker["ProducerId"],
            marker["ProducerEpoch"],
            marker["TransactionResult"],
            marker["CoordinatorEpoch"],
            marker.get("TransactionVersion", 0),
        )

        def write(topic: str, number: int, given: tuple[int, int, bool, int, int] = given) -> ErrorCode:
            leader = cluster.find_led(topic, number, request.node)
            return leader if isinstance(leader, ErrorCode) else cluster.write_marker(leader.name, *given)

        topics = [
            {
                "Name": topic["Name"],
                "Partitions": [
                    {"PartitionIndex": number, "ErrorCode": write(topic["Name"], number)}
                    for number in topic["PartitionIndexes"]
                ],
            }
            for topic in marker["Topics"]
        ]
        rows.append({"ProducerId": marker["ProducerId"], "Topics": topics})
    return {"Markers": rows}


def describe_producers(cluster: Cluster, request: Request) -> Message:
    """The producers that a partition's leader knows."""

    def answer(topic: str, number: int) -> Message:
        leader = cluster.find_led(topic, number, request.node)
        if isinstance(leader, ErrorCode):
            return {"PartitionIndex": number, "ErrorCode": leader}
        producers = []
        for producer_id, timestamp in leader.last_timestamps.items():
            known = leader.producer(producer_id)
            producers.append(
                {
                    "ProducerId": producer_id,
                    "ProducerEpoch": known.epoch,
                    "LastSequence": leader.last_sequence(producer_id),
                    "LastTimestamp": timestamp,
                    "CoordinatorEpoch": known.coordinator_epoch,
                    "CurrentTxnStartOffset": known.first_offset,
                }
            )
        return {"PartitionIndex": number, "ActiveProducers": producers}

    return {
        "Topics": [
            {"Name": topic["Name"], "Partitions": [answer(topic["Name"], n) for n in topic["PartitionIndexes"]]}
            for topic in request.row["Topics"]
        ]
    }


def describe_transactions(cluster: Cluster, request: Request) -> Message:
    """The coordinators' state of transactional.ids."""
    rows = []
    for name in request.row["TransactionalIds"]:
        known = cluster.transactions.known.get(name)
        error = transaction_error(cluster, request, name)
        if error is ErrorCode.NONE and known is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if error is not ErrorCode.NONE or known is None:
            rows.append({"ErrorCode": error, "TransactionalId": name})
            continue
        rows.append(
            {
                "TransactionalId": name,
                "TransactionState": STATE_NAMES[known.state],
                "TransactionTimeoutMs": known.timeout_ms,
                "TransactionStartTimeMs": known.start_ms,
                "ProducerId": known.machine.metadata.producer_id,
                "ProducerEpoch": known.machine.metadata.epoch,
                "Topics": [
                    {"Topic": topic, "Partitions": numbers}
                    for topic, numbers in by_topic(known.machine.metadata.partitions).items()
                ],
            }
        )
    return {"TransactionStates": rows}


def list_transactions(cluster: Cluster, request: Request) -> Message:
    """The transactional.ids of a broker's coordinators.    Kafka: TransactionStateManager.listTransactionStates."""
    row = request.row
    states, ids = set(row["StateFilters"]), set(row["ProducerIdFilters"])
    longer_than, pattern = row.get("DurationFilter", -1), row.get("TransactionalIdPattern")
    if pattern and not is_pattern(pattern):
        return {"ErrorCode": ErrorCode.INVALID_REGULAR_EXPRESSION}
    rows = []
    for name, known in cluster.transactions.known.items():
        metadata = known.machine.metadata
        too_young = cluster.now - known.start_ms <= longer_than  # as in Kafka, a start of -1 is long ago
        left_out = (
            transaction_error(cluster, request, name) is not ErrorCode.NONE
            or (states and STATE_NAMES[known.state] not in states)
            or (ids and metadata.producer_id not in ids)
            or too_young
            or (pattern and not re.fullmatch(pattern, name))
        )
        if not left_out:
            state = STATE_NAMES[known.state]
            rows.append({"TransactionalId": name, "ProducerId": metadata.producer_id, "TransactionState": state})
    return {"UnknownStateFilters": sorted(states - _STATES.keys()), "TransactionStates": rows}
