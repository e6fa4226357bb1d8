"""Seeded runs of an application on a group, written as recordings."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.record_batch import RecordBatch
from kafka_eos.histories.application_history import ApplicationRecorder
from kafka_eos.histories.history import Event, write_history
from kafka_eos.histories.simulator import Simulation
from kafka_eos.machines.consume_transform_produce import Constants, ConsumeTransformProduce
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.simulate import recording

# The faults of a run, with their weights next to an ordinary action's 10. An abort, an expiry and a timeout also mend
# the rest, so they go on; the constants limit the number of faults.
FAULTS: dict[str, float] = {"Abort": 1.0, "Crash": 1.0, "ExpireSession": 1.0, "TimeOut": 1.0}
REFERENCE = "ConsumeTransformProduceTwoInputs"  # the model whose instances, partitions and group a run has


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationPlan:
    """The plan of a simulated application; equal plans give equal runs.

    Attributes:
        seed: the seed of the random choices.
        steps: steps with faults; the run then comes to rest.
        inputs: inputs of each partition.
        faults: the most faults.
        weights: action -> weight, in place of ``FAULTS``; another action is only slower.
        mutant: a mutant of the registry, or "" for the reference as it is.
        model: a model of the registry, whose instances, partitions and group protocol are taken; a mutant has its own.
    """

    seed: int
    steps: int = 400
    inputs: int = 4
    faults: int = 4
    weights: Mapping[str, float] = field(default_factory=dict)
    mutant: str = ""
    model: str = REFERENCE

    def constants(self, registry: Registry) -> Constants:
        """The constants of the machine.

        Raises:
            MalformedRegistry: the model or mutant is not of ConsumeTransformProduce.
        """
        module = ConsumeTransformProduce.MODULE
        model = registry.mutant_of(module, self.mutant) if self.mutant else registry.get(self.model)
        if model.module != module:
            raise MalformedRegistry(f"{model.source}: of {model.module}; name one of ConsumeTransformProduce")
        found: Constants = model.machine_constants(ConsumeTransformProduce)
        inputs = frozenset(range(1, self.inputs + 1))
        return replace(found, inputs=inputs, max_faults=self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedApplication:
    """The result of a simulation: its history, its logs and its last state.

    Attributes:
        manifest: what was simulated.
        events: the history.
        logs: by topic and partition number, its batches.
        state: the last state.
    """

    manifest: Mapping[str, Any]
    events: list[Event]
    logs: Mapping[tuple[str, int], list[RecordBatch]]
    state: ConsumeTransformProduce


def simulate_application(plan: ApplicationPlan, registry: Registry | None = None) -> SimulatedApplication:
    """Run a plan.

    Raises:
        MalformedRegistry: for an unknown mutant, or one of another machine.
        ValueError: for a fault that is no action.
    """
    registry = registry or Registry()
    constants = plan.constants(registry)
    machine: type[Any] = ConsumeTransformProduce
    if plan.mutant:
        machine = mutated(ConsumeTransformProduce, registry.get(plan.mutant).overrides)
    weights = FAULTS | dict(plan.weights)
    simulation = Simulation(machine, constants, plan.seed, weights, weights.keys())
    recorder = ApplicationRecorder(
        run=f"simulated-application/{plan.mutant or 'reference'}/{plan.seed}", constants=constants
    )
    recorder.watch(simulation.run(plan.steps))
    logs = {**recorder.logs, (OFFSETS_TOPIC, 0): recorder.offsets}
    manifest = {**asdict(plan), "weights": weights}
    return SimulatedApplication(manifest=manifest, events=recorder.events, logs=logs, state=simulation.state)


def write_application(simulated: SimulatedApplication, folder: Path) -> None:
    """Write manifest.json, histories/ and brokers/, as a recording of a real cluster has them."""
    write_history(recording.begin(folder, simulated.manifest), simulated.events)
    for (topic, number), batches in simulated.logs.items():
        recording.write_segment(folder, 1, f"{topic}-{number}", b"".join(batch.encode() for batch in batches))
