"""The layers that are walked: every model of the registry that holds, with constants that TLC could not search.

A layer is a model with larger constants: more instances, transactions, inputs, epochs, and many faults where TLC allows
one or two. Some models that must fail are layers too, with the properties that hold in them (:data:`EXPOSED`). Mutants
and models that must fail are walked with the registry's constants and with larger ones.
For each machine the table :data:`WALKS` has the facts that a walk needs; the machine's properties are in the spec.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeAlias

from kafka_eos.histories.transaction_history import possible_arguments
from kafka_eos.machines.broker import Broker
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.models.releases import Releases, columns

Arguments: TypeAlias = Sequence[tuple[Hashable, ...]]
Possible: TypeAlias = Mapping[str, Callable[[Any], Arguments]]
Constants: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The facts about a machine that a walk needs.

    Attributes:
        larger: maps a model's constants to the larger ones that the walk uses.
        faults: actions that are faults: a run leaves some out, and takes the others seldom.
        kinds: the same for a machine whose constant ``Faults`` names the kinds that may happen: a run leaves out some
            of those kinds, and takes these actions seldom.
        goals: maps a model's constants to the goals that must be reached after the faults have stopped.
        possible: action -> the arguments that are worth a try in a state.
        axes: constant sets of which a run may leave out some elements: the participants.
        steps: steps with faults in one run.
        left_out: property -> why it cannot be evaluated in so large a state.
    """

    larger: Callable[[Constants], Constants] = dict
    faults: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    goals: Callable[[Constants], tuple[str, ...]] = lambda _: ()
    possible: Possible = field(default_factory=dict)
    axes: frozenset[str] = frozenset(
        {"Instances", "Partitions", "Tasks", "Replicas", "Versions", "Errors", "ProducerIds"}
    )
    steps: int = 150
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A model with larger constants.

    Attributes:
        name: the model's or the mutant's.
        model: the model with the larger constants.
        properties: their names.
        walk: the facts about the machine.
    """

    name: str
    model: Model
    properties: tuple[str, ...]
    walk: Walk


def _range(first: int, last: int) -> str:
    return f"{{{', '.join(map(str, range(first, last + 1)))}}}"


def _always(*goals: str) -> Callable[[Constants], tuple[str, ...]]:
    return lambda _: goals


def _where(goal: str, **constants: str) -> Callable[[Constants], tuple[str, ...]]:
    """A goal of the models that have these constants."""
    return lambda given: (goal,) if all(given[name] == text for name, text in constants.items()) else ()


def _replacing(**texts: str) -> Callable[[Constants], Constants]:
    return lambda _: texts


def _transactions(constants: Constants) -> Constants:
    faults = constants["Faults"]
    if constants["Versions"] == "{2}" and "failover" in faults and "election" in faults:
        faults = faults.replace("}", ', "former coordinator"}')
    texts = {
        "Numbers": _range(1, 4),
        "Epochs": _range(0, 60),
        "CoordinatorEpochs": _range(0, 12),
        "Partitions": '{"p", "q"}',
    }
    return texts | {"Instances": '{"A", "B"}', "Faults": faults, "MaxFaults": "0" if faults == "{}" else "8"}


def _consume_transform_produce(constants: Constants) -> Constants:
    ids = '{"p", "q"}' if constants["Eos"] == '"v1"' else '{"A", "B", "C"}'
    return {
        "Instances": '{"A", "B", "C"}',
        "Partitions": '{"p", "q"}',
        "Preferred": '[p |-> "A", q |-> "B"]',
        "TransactionalIds": ids,
        "Inputs": _range(1, 4),
        "MaxFaults": "10",
    }


def _idempotent_producer(constants: Constants) -> Constants:
    replicas = "{{{}}}".format(", ".join(f'"{name}"' for name in "abc"))
    several = constants["Replicas"] != '{"a"}'
    return {
        "Values": _range(1, 6),
        "Attempts": _range(1, 4),
        "MaxSequence": "15",
        "MaxLeaderEpoch": "6",
        "MaxEpoch": "6" if constants["MaxEpoch"] != "0" else "0",
        "Replicas": replicas if several else constants["Replicas"],
    }


def _consumer(constants: Constants) -> Constants:
    last = 12
    sizes = {"1": "1", "4": "3", "3": "3", "5": "5", "2": "2"}
    found = re.findall(r"\d+", constants["FetchSizes"])
    return {
        "Offsets": _range(0, last),
        "ProducerIds": "{1, 2, 3}",
        "FetchSizes": "{" + ", ".join(sorted({sizes[size] for size in found})) + "}",
        "MaxLeaderEpoch": "4" if constants["MaxLeaderEpoch"] != "0" else "0",
    }


def _coordinator(constants: Constants) -> Constants:
    larger = {"MaxEpoch": "4", "Partitions": '{"p", "q"}', "ProducerIds": _range(0, 9), "MaxTransactions": "12"}
    return larger | {"MaxFaults": "0" if constants["Faults"] == "{}" else "8"}


def _partition_log(_: Constants) -> Constants:
    return {"ProducerIds": "{0, 1}", "Epochs": _range(0, 2), "MaxEntries": "20"}


def _broker(constants: Constants) -> Constants:
    sequences = constants["Sequences"] if constants["Sequences"] == "{}" else _range(0, 3)
    larger = {"ProducerIds": _range(0, 3), "MaxEpoch": "4", "MaxEntries": "20", "MaxTransactions": "12"}
    larger |= {"Sequences": sequences, "TransactionalIds": '{"A", "B"}'}
    return larger | {"MaxFaults": "0" if constants["Faults"] == "{}" else "8"}


def _on_its_way(state: IdempotentProducer) -> Arguments:
    return sorted((request.value, request.attempt) for request in state.requests)


def _identities(state: TransactionCoordinator) -> list[tuple[int, int]]:
    """Producer ids and epochs near those that the coordinator knows and those that clients were given."""
    known = state.metadata
    near = {(known.producer_id, known.epoch + by) for by in (-1, 0)} | {(state.given.producer_id, state.given.epoch)}
    return sorted((number, epoch) for number, epoch in near if number >= 0 and epoch >= 0)


def _inits(state: TransactionCoordinator) -> Arguments:
    return [(-1, -1), *_identities(state)]


def _adds(state: TransactionCoordinator) -> Arguments:
    constants = state.constants
    return [
        (*identity, partition, version)
        for identity in _identities(state)
        for partition in sorted(constants.partitions)
        for version in sorted(constants.versions)
    ]


def _ends(state: TransactionCoordinator) -> Arguments:
    return [
        (*identity, commit, version)
        for identity in _identities(state)
        for commit in (False, True)
        for version in sorted(state.constants.versions)
    ]


def _presented(state: Broker) -> list[tuple[str, int, int]]:
    """transactional.ids, each with producer ids and epochs near those that its coordinator knows."""
    return sorted(
        (name, known.producer_id, known.epoch + by)
        for name, known in state.coordinators.items()
        for by in (-1, 0, 1)
        if known.producer_id >= 0 and 0 <= known.epoch + by <= state.constants.max_epoch
    )


def _init_of_broker(state: Broker) -> Arguments:
    return [*((name, -1, -1) for name in sorted(state.coordinators)), *_presented(state)]


def _presenting(*domains: str) -> Callable[[Broker], Arguments]:
    """The arguments of a request that presents a producer id and epoch, with values of some sets behind them."""

    def found(state: Broker) -> Arguments:
        rest = list(product(*(state.constants.domain(name) for name in domains)))
        return [(*presented, *values) for presented in _presented(state) for values in rest]

    return found


def _of_transactions(constants: Constants) -> tuple[str, ...]:
    # without verification a late batch may leave a transaction open for good (HangingTransaction)
    catches_up = ("EveryPartitionCatchesUp",) if constants["Verification"] == "TRUE" else ()
    return ("EveryTransactionEnds", "CoordinatorComesToRest", *catches_up)


def _of_sinks(constants: Constants) -> tuple[str, ...]:
    takes_all = constants["Strategy"] in {'"outbox"', '"idempotent sink"', '"offsets in the database"'}
    return ("EveryInputTakesEffect",) if takes_all else ()


# An instance may end its transaction, or give a batch up, at any time: that is left to chance.
_REQUESTS: Possible = {name: found for name, found in possible_arguments().items() if name not in {"Expire", "End"}}

_DELIVERY = "its steps range over all sequences of values up to twice each"
_DELIVERIES = {f"Refines{name}": _DELIVERY for name in ("ExactlyOnce", "AtLeastOnce", "AtMostOnce")}

WALKS: Mapping[str, Walk] = {
    "Transactions": Walk(
        larger=_transactions,
        faults=frozenset({"Upgrade"}),
        kinds=frozenset(
            {
                "Crash",
                "TimeOut",
                "Failover",
                "ElectLeader",
                "FindNoLeader",
                "RepeatMarker",
                "VerifyByFormer",
                "AbortByAdmin",
            }
        ),
        goals=_of_transactions,
        possible=_REQUESTS,
    ),
    "ConsumeTransformProduce": Walk(
        larger=_consume_transform_produce,
        kinds=frozenset({"Crash", "ExpireSession", "JoinWhileProcessing", "TimeOut"}),
        goals=_always("EveryInputTakesEffect"),
    ),
    "IdempotentProducer": Walk(
        larger=_idempotent_producer,
        faults=frozenset(
            {
                "Resend",
                "Expire",
                "Crash",
                "ElectLeader",
                "ElectUncleanLeader",
                "ShrinkIsr",
                "RestartProducer",
                "ExpireProducer",
                "TakeSnapshot",
            }
        ),
        goals=_where("EverySendEnds", ResendAfterRestart="FALSE"),  # what is sent again may have no attempt left
        possible=dict.fromkeys(("AppendBatch", "AcknowledgeDuplicate", "RefuseBatch"), _on_its_way),
        left_out=_DELIVERIES,
    ),
    "PartitionLog": Walk(
        larger=_partition_log,
        faults=frozenset({"FailAppend", "TakeSnapshot", "Restart", "ExpireProducer"}),
        steps=60,
    ),
    "Leader": Walk(
        larger=_replacing(ProducerIds="{0, 1}", Epochs="{0, 1, 2}", GuardNumbers="-1..20", MaxEntries="20"),
        faults=frozenset({"ElectLeader", "ExpireProducer"}),
        steps=60,
    ),
    "Broker": Walk(
        larger=_broker,
        kinds=frozenset({"Restart"}),
        possible={
            "InitProducerId": _init_of_broker,
            "AddPartitionsToTxn": _presenting(),
            "AddOffsetsToTxn": _presenting(),
            "EndTxn": _presenting("BOOLEAN"),
            "Produce": _presenting("Sequences", "BatchCounts"),
            "TxnOffsetCommit": _presenting("Members", "Generations"),
        },
    ),
    "TransactionCoordinator": Walk(
        larger=_coordinator,
        kinds=frozenset({"AppendTimesOut", "ExpireTransactionalId", "Failover", "TimeOut"}),
        goals=_always("DecisionsComplete", "FencedTransactionsEnd"),
        possible={"HandleInitProducerId": _inits, "HandleAddPartition": _adds, "HandleEndTxn": _ends},
    ),
    "Consumer": Walk(
        larger=_consumer,
        faults=frozenset({"FailIndexEntry", "ElectLeader", "ExpireProducer", "Clean"}),
        goals=_where("ReadersReachEnd", IndexFailures="FALSE"),
        steps=60,
    ),
    "EpochBump": Walk(
        larger=_replacing(Attempts=_range(1, 12), MaxEpoch="4"), faults=frozenset({"RepeatBump", "AnotherInstanceAsks"})
    ),
    "TransactionalOffsets": Walk(
        larger=_replacing(Sends=_range(1, 16), Numbers=_range(1, 8), MaxFaults="6"),
        kinds=frozenset({"FailOver", "FetchFromFormer"}),
        goals=_always("OffsetsAreSettled"),
        steps=250,
    ),
    "Mirror": Walk(
        larger=_replacing(Records=_range(1, 8), Tasks='{"A", "B", "C"}', BatchSize="3"),
        faults=frozenset({"Crash", "Delete"}),
        left_out=_DELIVERIES,
        steps=100,
    ),
    "StatefulProcessor": Walk(
        larger=_replacing(
            Inputs=_range(1, 6),
            KeyOf='<<"a", "b", "a", "c", "b", "a">>',
            Keys='{"a", "b", "c"}',
            Instances='{"A", "B", "C"}',
            MaxFaults="10",
        ),
        faults=frozenset({"Abort", "Crash"}),
        goals=_always("EveryInputIsCounted"),
    ),
    "Transfer": Walk(
        larger=_replacing(Transfers=_range(1, 5), Instances='{"A", "B", "C"}', MaxFaults="10"),
        faults=frozenset({"Abort", "Crash"}),
        goals=_where("EveryTransferIsMade", Transactional="TRUE"),
    ),
    "ApplicationLoop": Walk(
        larger=_replacing(Inputs=_range(1, 8), MaxFaults="10"),
        faults=frozenset({"Crash", "FailSend", "LoseAnswer", "TimeOut"}),
        goals=_where("EveryInputIsProcessed", Loop='"transactions"'),
        left_out=_DELIVERIES,
    ),
    "ExternalSink": Walk(
        larger=_replacing(Inputs=_range(1, 8), MaxFaults="10"),
        faults=frozenset({"Crash", "LoseAnswer", "LoseCall", "RestartRelay"}),
        goals=_of_sinks,
        left_out=_DELIVERIES,
    ),
    "TransactionalProducer": Walk(
        larger=_replacing(
            MaxTransactions="4", MaxSends="3", MaxFaults="8", MaxRecreations="2", Partitions='{"p", "q"}'
        ),
        faults=frozenset(
            {
                "FailSend",
                "TimeOutCall",
                "LoseConnection",
                "RetryRequest",
                "FailTransaction",
                "RefuseInitialization",
                "FailProducer",
                "RetryBatch",
                "FailBatch",
                "FailProducerByBatch",
                "ExpireBatch",
                "Upgrade",
                "RecreateTopic",
            }
        ),
        goals=_always("EveryCallEnds"),
    ),
}


_WHOLE = "other modules refine it; it takes steps of its own only in TLC"
_ANY_STATE = "the models start in every state that an invariant allows, but a walk starts in one"
UNWALKED: Mapping[str, str] = {
    "AtomicTransactions": _WHOLE,
    "ExactlyOnce": _WHOLE,
    "ProducerIds": "TLC searches it completely, with more blocks and restarts than a walk would meet",
    "SharePartition": "TLC searches it completely; a longer log has more records, each with the same few states",
    **dict.fromkeys(
        ("ConsumerInduction", "CoordinatorInduction", "FencingInduction", "OffsetsInduction", "PartitionLogInduction"),
        _ANY_STATE,
    ),
}
"""The reason why the models of a module are not walked, by module."""


# The participants of a model that must fail were chosen so that it fails: these constants stay.
_ACTORS = frozenset({"Instances", "Partitions", "Preferred", "TransactionalIds", "Replicas", "Tasks"})


def _enlarged(model: Model, kept: frozenset[str] = frozenset()) -> Model:
    larger = WALKS[model.module].larger(model.constants)
    texts = {name: text for name, text in larger.items() if name not in kept}
    return replace(model, constants={**model.constants, **{k: v for k, v in texts.items() if k in model.constants}})


# (layer, property) -> why it does not hold where the constants are larger
_ANY_FIRST_SEQUENCE = (
    "a partition that holds records takes any first sequence of a producer id that it does not know: after a restart "
    "the second of two batches in flight may come first, and the first is refused (NewProducerWithTwoInFlight)"
)
_LATE_BATCH_TEARS = (
    "without verification a late batch of an aborted transaction is committed with the next one, though the other half "
    "of its own is not: that takes two partitions and two transactions (LateBatchTearsTransaction)"
)
BEYOND: Mapping[tuple[str, str], str] = {
    ("ProducerRestarts", "NoGap"): _ANY_FIRST_SEQUENCE,
    ("ProducerRestarts", "NoSpuriousError"): _ANY_FIRST_SEQUENCE,
    ("TransactionsUnverified", "AllOrNone"): _LATE_BATCH_TEARS,
    ("UnverifiedTwoPartitions", "AllOrNone"): _LATE_BATCH_TEARS,
    ("LeaderExpiry", "TransactionsAreVouchedFor"): (
        "the leader has forgotten the producer, and with it that a marker ended its transaction, while a batch that "
        "the coordinator had vouched for was on its way: in Kafka that takes a day (producer.id.expiration.ms)"
    ),
    ("AbortByAdminAlone", "AllOrNone"): "an abort by hand of one partition of two tears the transaction (AbortByAdmin)",
}

# Models that must fail, with actions that no holding model can take, and the properties that hold in them.
_COORDINATOR = ("NothingIsStuck", "Fenced", "OnlyLegalTransitions", "EveryTransactionEnds", "CoordinatorComesToRest")
_LOGS = ("CommittedAsAsked", "AbortedIsGone", "OneTransactionPerMarker", "NoHangingTransaction")
EXPOSED: Mapping[str, tuple[str, ...]] = {
    "FormerCoordinatorVouches": (*_COORDINATOR, "NoSpuriousError"),
    "AbortByAdmin": (*_COORDINATOR, *_LOGS, "EveryPartitionCatchesUp"),
    "HangingTransaction": (*_COORDINATOR, "NoSpuriousError"),
}


def _is_whole(model: Model) -> bool:
    """A model of the machine as it is, of which safety is asked."""
    return model.module in WALKS and not model.overrides and bool(model.invariants) and not model.expect.violates


def layers(registry: Registry) -> list[Layer]:
    """Every model that holds (of those that become equal with larger constants, one), and the exposed ones."""
    found: dict[tuple[Any, ...], Layer] = {}
    for model in registry.models.values():
        if not _is_whole(model):
            continue
        larger = _enlarged(model)
        key = (model.module, *sorted(larger.constants.items()))
        walk = WALKS[model.module]
        known = found.get(key)
        named = dict.fromkeys(
            (*(known.properties if known else ()), *model.invariants, *model.properties, *walk.goals(larger.constants))
        )
        name = known.name if known else model.name
        properties = tuple(n for n in named if n not in walk.left_out and (name, n) not in BEYOND)
        layer = Layer(name=name, model=larger, properties=properties, walk=walk)
        found[key] = layer
    exposed = [_exposed(registry.models[name]) for name in EXPOSED if name in registry.models]
    return [*found.values(), *exposed]


def layers_of_release(registry: Registry, release: str) -> list[Layer]:
    """The layers that a release of Kafka has other rules for, with these rules.

    A property that TLC shows violated by the release, in any model of the module, is left out: what remains has to hold
    with the larger constants too.

    Raises:
        MalformedRegistry: when there is no such release.
    """
    releases = Releases(registry.folder.parent)
    violated = violated_by_release(registry, releases, release)
    found = []
    for layer in layers(registry):
        [column] = columns([layer.model], [release], releases)
        if column.rules:
            left = tuple(name for name in layer.properties if name not in violated.get(layer.model.module, ()))
            if left:  # a run that nothing judges would count as one without a violation
                found.append(replace(layer, name=column.name, model=column.as_shipped, properties=left))
    return found


def violated_by_release(registry: Registry, releases: Releases, release: str) -> dict[str, frozenset[str]]:
    """Module -> its properties that TLC shows violated by rules of a release, as the registry expects it.

    A rule that another release has too counts where TLC shows the violation for that one.
    """
    found: dict[str, frozenset[str]] = {}
    for column in columns(registry.models.values(), releases.releases, releases):
        expected = column.expected(releases)
        if expected is not None:
            module = column.model.module
            own = {
                name
                for name, causes in expected.violates.items()
                if all(releases.has_alike(module, cause, column.release, release) for cause in causes.split(", "))
            }
            found[module] = found.get(module, frozenset()) | own
    return found


def _exposed(model: Model) -> Layer:
    """The layer of a model that must fail, with what holds in it."""
    return Layer(name=model.name, model=_enlarged(model), properties=EXPOSED[model.name], walk=WALKS[model.module])


def broken_layer(registry: Registry, name: str, larger: bool = True) -> Layer:
    """The layer of a mutant, or of a model that must fail, with the property that has to be violated among others.

    Args:
        registry: the registry with the mutant or model.
        name: the name of the mutant or model.
        larger: whether the constants are larger than the registry's; not where the property could not be evaluated.

    Raises:
        MalformedRegistry: when there is no such mutant or model, or it need not fail.
    """
    model = registry.get(name)
    if not model.expect.violates or model.module not in WALKS:
        raise MalformedRegistry(
            f"{registry.folder}: {name!r} need not fail, or its module {model.module} is not walked"
        )
    base = registry.get(model.model) if model.model else model
    walk = WALKS[model.module]
    wanted: Iterable[str] = (*base.invariants, *base.properties) if base is not model else ()
    named = dict.fromkeys((model.expect.violates, *wanted))
    if model.expect.violates in walk.left_out:
        return Layer(name=name, model=model, properties=tuple(named), walk=walk)
    properties = tuple(n for n in named if n not in walk.left_out)
    walked = _enlarged(model, _ACTORS) if larger else model
    return Layer(name=name, model=walked, properties=properties, walk=walk)


def broken(registry: Registry) -> list[str]:
    """The mutants and the models that must fail, of machines that are walked, except those that no walk can see."""
    failing = [model.name for model in registry.models.values() if model.expect.violates and model.module in WALKS]
    seen = (mutant for mutant in registry.mutants.values() if "simulation" not in mutant.blind)
    return [*failing, *(mutant.name for mutant in seen if mutant.module in WALKS)]
