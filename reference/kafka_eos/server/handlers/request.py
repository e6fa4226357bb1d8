"""A request as handlers get it, and the functions that handlers share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos.machines.leader import NO_SEQUENCE
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.partitions import Leader, Ticket
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Message

FIRST_VERSION_2 = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
"""From which request version on a client follows transaction version 2 (KIP-890)."""
NEWEST_VERSIONS = {"InitProducerId": 5}
"""Where Kafka does not offer the newest version of its schema: it is not stable yet (KIP-939)."""


@cache
def served_versions(api: str) -> range:
    """The versions of an API that are served."""
    versions = served_codec().versions(f"{api}Request")
    return range(versions.start, min(versions.stop, NEWEST_VERSIONS.get(api, versions.stop) + 1))


@dataclass(slots=True)
class Request:
    """A request as handlers get it.

    Attributes:
        api: the name of its API.
        version: the message's version.
        row: its fields.
        node: the broker that it came to.
        client_id: as the client calls itself.
        client_host: where it comes from.
        reply: the function that answers it, for those that are not answered at once.
        cancel: the function that forgets it, when its client is gone before it is answered.
        failed: why the connection of a request without an answer is closed; empty if it is not.
    """

    api: str
    version: int
    row: Message
    node: int
    client_id: str
    client_host: str
    reply: Callable[[Message], None]
    cancel: Callable[[], None] | None = None
    failed: str = ""

    @property
    def transaction_version(self) -> int:
        """The version of transactions that the client follows."""
        return TRANSACTION_VERSION_2 if self.version >= FIRST_VERSION_2[self.api] else 1


def per_topic(topics: Iterable[Message], answer: Callable[[str, Message], Message]) -> list[Message]:
    """The rows of a response that has topics with partitions, as its request."""
    return [
        {"Name": topic["Name"], "Partitions": [answer(topic["Name"], row) for row in topic["Partitions"]]}
        for topic in topics
    ]


def group_error(cluster: Cluster, request: Request, group: str) -> ErrorCode:
    """The reason why a broker does not coordinate a group; ``NONE`` if it does."""
    if cluster.offsets_partition(group).node != request.node:
        return ErrorCode.NOT_COORDINATOR
    full = group not in cluster.groups.known and len(cluster.groups.known) >= cluster.settings.limits.groups
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if full else ErrorCode.NONE


def named_group_error(cluster: Cluster, request: Request, group: str) -> ErrorCode:
    """As ``group_error``, of requests that need a name.    Kafka: GroupCoordinatorService.isGroupIdNotEmpty."""
    return group_error(cluster, request, group) if group else ErrorCode.INVALID_GROUP_ID


def transaction_error(cluster: Cluster, request: Request, transactional_id: str) -> ErrorCode:
    """The reason why a broker does not coordinate a transactional.id; ``NONE`` if it does."""
    if cluster.state_partition(transactional_id).node != request.node:
        return ErrorCode.NOT_COORDINATOR
    is_loading = cluster.transactions.is_loading(transactional_id)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE


def ticket_for(
    cluster: Cluster, request: Request, leader: Leader, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE
) -> tuple[ErrorCode, Ticket | None]:
    """The ticket of a transactional batch for its leader; the coordinator is asked where the leader needs it.

    Spec:  Leader!StartVerification, RefuseVerification, Transactions!Verify
    Kafka: ReplicaManager.maybeSendPartitionsToTransactionCoordinator, AddPartitionsToTxnManager
    """
    version = request.transaction_version
    if not leader.needs_verification(producer_id, epoch, version):
        return ErrorCode.NONE, Ticket(version)
    if (refused := leader.verification_error(producer_id, epoch)) is not ErrorCode.NONE:
        return refused, None
    ticket = leader.start_verification(producer_id, epoch, sequence, version)
    name, coordinators = request.row["TransactionalId"], cluster.transactions
    if coordinators.is_loading(name):
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif version >= TRANSACTION_VERSION_2:
        error = coordinators.add_partitions(name, producer_id, epoch, [leader.name], version, cluster.now)
    else:
        error = coordinators.verify(name, producer_id, epoch, leader.name)
    if error is not ErrorCode.NONE:
        leader.drop_guard(producer_id)
    return _told_to_producer(error, request), ticket


def _told_to_producer(error: ErrorCode, request: Request) -> ErrorCode:
    """The error with which a leader passes on the coordinator's.    Kafka: ReplicaManager.handleProduceAppend."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and request.transaction_version < TRANSACTION_VERSION_2:
        return ErrorCode.NOT_ENOUGH_REPLICAS if request.api == "Produce" else error
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.NOT_ENOUGH_REPLICAS if request.api == "Produce" else error
    if error is ErrorCode.TRANSACTION_ABORTABLE and request.version < FIRST_VERSION_2[request.api] - 1:
        return ErrorCode.INVALID_TXN_STATE
    return error
