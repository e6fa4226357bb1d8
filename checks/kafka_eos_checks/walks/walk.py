"""One run: a random walk over a machine under a swarm of faults, then a fair end without them.

A run draws a subset of the kinds of faults and a weight for every action, and takes enabled actions by weight (swarm
testing: leaving some kinds out lets the others happen more often). Then the faults stop. The spec's fair actions go on
until none of them is enabled, and then the goals have to be reached. Every state and every step is judged by the spec's
own properties.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import product
from math import log
from operator import attrgetter
from random import Random
from typing import Any

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import Action, Instance, actions, load_constants
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.models.formulas import Formulas, State
from kafka_eos_checks.models.registry import Model, bounds_predicate, constants_class
from kafka_eos_checks.mutants.rules import mutated, owner_of
from kafka_eos_checks.tla.evaluation import Converter
from kafka_eos_checks.walks.corpus import EXHAUSTED, Corpus
from kafka_eos_checks.walks.fairness import FairActions
from kafka_eos_checks.walks.layers import Layer
from kafka_eos_checks.walks.properties import Judge, Wrong, parts

MOST_FAIR_STEPS = 3_000
LIKELY = (0.0, 0.2, 0.35, 0.5, 0.8)  # a run draws one of these as the probability that it has a kind of fault
SELDOM = 6.0  # in half of the runs faults are less frequent than other actions: down to 2 ** -SELDOM times
STEPS_FROM_KEPT = 40  # the steps of a run that starts in a kept state
RARELY = 0.04  # how often arbitrary arguments are tried instead of the promising ones
MOST_MISSES = 3  # how often the clock of an action that is not enabled is halved
MOST_TRIES = 4  # how many instances of one action are tried before another action is drawn
AGAIN = 0.02  # how often a step to a visited state is taken, though there may be another
NOT_AT_REST = "comes to rest"


@dataclass(slots=True)
class Coverage:
    """The coverage of runs.

    Attributes:
        actions: action -> how often it was taken.
        refusals: action and the conjunct of its guard that was false, or the error code -> how often.
        faults: two kinds of faults, in alphabetical order -> in how many runs both happened.
    """

    actions: Counter[str] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)

    def points(self) -> frozenset[str]:
        """Each point of the coverage, as one word."""
        return frozenset(
            (*self.actions, *map(" refused: ".join, self.refusals), *(" and ".join(pair) for pair in self.faults))
        )

    def add(self, other: "Coverage") -> None:
        """Add the counts of another coverage."""
        self.actions.update(other.actions)
        self.refusals.update(other.refusals)
        self.faults.update(other.faults)


@dataclass(slots=True)
class Run:
    """The course of one walk.

    Attributes:
        seed: the seed that determines it.
        schedule: the steps with faults.
        before: how many of these steps lead to the kept state in which the run starts.
        fair: the steps after the faults have stopped.
        wrong: the violation, if there is one.
        cut_off: whether the run ends at the bounds of the constants, so that its goals are not judged.
        time: the clocks' time when the faults stop.
        coverage: the coverage of the run.
    """

    seed: int
    schedule: list[Instance] = field(default_factory=list)
    before: int = 0
    fair: list[Instance] = field(default_factory=list)
    wrong: Wrong | None = None
    cut_off: bool = False
    time: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def steps(self) -> int:
        """The number of steps that were taken in this run."""
        return len(self.schedule) - self.before + len(self.fair)


def _shape(arguments: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    return tuple(None if type(argument) is int else argument for argument in arguments)


def shape_of(instance: Instance) -> tuple[Hashable, ...]:
    """The arguments of an instance without their numbers."""
    return _shape(instance.arguments)


def _with_rules(machine: type[Any], model: Model) -> type[Any]:
    """A model's machine with the rules that the model replaces, except those that only properties use."""
    rules = {rule: other for rule, other in model.overrides.items() if owner_of(machine, rule) is not None}
    return mutated(machine, rules) if rules and not model.machine else machine


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The instances of an action that a run may draw: all, or those whose arguments are among the chosen ones."""

    action: Action
    instances: list[Instance]
    limits: tuple[tuple[int, frozenset[Hashable]], ...]

    def allows(self, arguments: tuple[Hashable, ...]) -> bool:
        """Whether the run may draw these arguments."""
        return all(arguments[place] in some for place, some in self.limits)


class _Clocks:
    """Virtual time: every action has a clock, which rings at random with the action's weight as its rate.

    Time is not waited for: it jumps to the next clock that rings. The clock of an action that is not enabled stands
    still until a step is taken, and is slower for a while when that happens again and again.
    """

    def __init__(self, weights: Mapping[str, float], random: Random) -> None:
        self.names = list(weights)
        self.random = random
        self.now = 0.0
        self._means = [1.0 / weight for weight in weights.values()]
        self._misses = [0] * len(self.names)
        self._still: list[int] = []
        self._queue = [(-mean * log(1.0 - random.random()), place) for place, mean in enumerate(self._means)]
        heapify(self._queue)

    def next(self) -> str | None:
        """The action whose clock rings next, which then stands still; None if all of them do."""
        if not self._queue:
            return None
        self.now, place = heappop(self._queue)
        self._still.append(place)
        return self.names[place]

    def wind(self) -> None:
        """The action that rang last was taken: wind the clocks that stand still."""
        draw, misses = self.random.random, self._misses
        misses[self._still[-1]] = -1
        for place in self._still:
            missed = misses[place] = min(misses[place] + 1, MOST_MISSES)
            heappush(self._queue, (self.now - self._means[place] * log(1.0 - draw()) * (1 << missed), place))
        self._still.clear()


class Walker:
    """Walks over one layer; the compiled formulas serve every run.

    Args:
        layer: the layer that is walked.
        every_time: evaluate every property at every step, even if no variable that it reads has changed.
    """

    def __init__(self, layer: Layer, every_time: bool = False) -> None:
        self.layer = layer
        self.every_time = every_time
        model = layer.model
        self.formulas = Formulas(model, remember=not every_time)
        machine = model.machine_class()
        self.machine: type[Any] = _with_rules(machine, model)
        self.constants = load_constants(constants_class(machine), self.formulas.constants)
        self.convert = Converter()
        self.judge = Judge(every_time=every_time)
        for name in layer.properties:
            self.judge.add(parts(self.formulas, name))
        self.variables = [snake_case(name) for name in self.formulas.variables]
        self._values = attrgetter(*self.variables)
        self._counts_faults = "faults" in self.variables
        self._faults = layer.walk.faults | layer.walk.kinds
        self._within = bounds_predicate(model)
        self._actions: list[Action] = list(actions(self.machine))
        self._domains = {
            action.name: [tuple(self.constants.domain(domain)) for domain in action.domains] for action in self._actions
        }
        self._instances: dict[str, list[Instance]] = {
            action.name: [Instance(action, given) for given in product(*self._domains[action.name])]
            for action in self._actions
            if action.name not in layer.walk.possible
        }
        self._of_shape: dict[tuple[str, tuple[Hashable, ...]], list[Instance]] = {}
        for one in (one for every in self._instances.values() for one in every):
            self._of_shape.setdefault((one.action.name, _shape(one.arguments)), []).append(one)
        self._axes = {
            name: sorted(self.constants.domain(name))
            for name in sorted({domain for action in self._actions for domain in action.domains})
            if name in layer.walk.axes
        }
        self._candidates: dict[str, _Candidates] = {}
        self._known_candidates: dict[tuple[str, tuple[tuple[int, frozenset[Hashable]], ...]], _Candidates] = {}
        self.fairness = FairActions(self.formulas, self._actions, self._within)

    # --- states

    def spec(self, state: Any) -> State:
        """A state as the spec's variables."""
        return tuple(map(self.convert, self._values(state)))

    def _after(self, values: tuple[Any, ...], spec: State, state: Any) -> tuple[tuple[Any, ...], State, int]:
        """A state's values, the same values in the spec's form, and which of them have changed."""
        after = self._values(state)
        changed = [place for place, value in enumerate(after) if value is not values[place]]
        if not changed:
            return after, spec, 0
        converted = list(spec)
        bits = 0
        for place in changed:
            value = self.convert(after[place])
            if value is not converted[place] and (value.__class__ is not int or value != converted[place]):
                converted[place] = value
                bits |= 1 << place
        return after, tuple(converted) if bits else spec, bits

    def initial(self, constants: Any) -> Any:
        """The first state."""
        return self.machine.initial(constants)

    # --- a run

    def run(self, seed: int, corpus: Corpus | None = None) -> Run:
        """The run that a seed determines; with a corpus, the states that earlier runs have kept determine it too."""
        random = Random(f"{self.layer.name} {seed}")
        run = Run(seed)
        kept = corpus.choose(random) if corpus is not None else None
        constants, weights = self._swarm(random, kept.state.faults if kept is not None and self._counts_faults else 0)
        self._candidates = self._swarm_of_actors(random)
        self._forget()
        state = self.initial(constants) if kept is None else replace(kept.state, constants=constants)
        values = self._values(state)
        spec = self.spec(state)
        if kept is None:
            run.wrong = self.judge.first(spec)
        else:
            run.schedule += kept.schedule
            run.before = len(kept.schedule)
        if corpus is not None:
            corpus.begin(spec)
        happened: set[str] = set()
        clocks = _Clocks(weights, random)
        coverage = run.coverage
        judge = self.judge
        most = self.layer.walk.steps if kept is None else STEPS_FROM_KEPT
        for _ in range(most if run.wrong is None else 0):
            found = self._draw(state, clocks, coverage, corpus)
            if found is None:
                break
            instance, after, is_new = found
            run.schedule.append(instance)
            if self._is_fault(instance, state, after):
                happened.add(instance.action.name)
            values, after_spec, changed = self._after(values, spec, after)
            run.wrong = judge.step(spec, after_spec, changed)
            state, spec = after, after_spec
            if run.wrong is not None:
                break
            if corpus is not None:
                if not is_new:
                    break
                corpus.offer(state, spec, changed, run.schedule)
        if kept is not None and run.wrong is None and len(run.schedule) <= run.before + 1:
            kept.visits += EXHAUSTED
        run.time = clocks.now
        coverage.actions.update(instance.action.name for instance in run.schedule[run.before :])
        coverage.faults.update((one, two) for one in happened for two in happened if one < two)
        if run.wrong is None:
            run.wrong, run.fair = self._come_to_rest(state, random)
            run.cut_off = bool(self.judge.goals) and self.fairness.cut_off
            coverage.actions.update(instance.action.name for instance in run.fair)
        return run

    def _forget(self) -> None:
        if self.convert.forget():
            self.formulas.forget()
            self.judge.forget()

    def _swarm(self, random: Random, happened: int = 0) -> tuple[Any, dict[str, float]]:
        """The constants of a run, with the faults that may happen in it, and the weights of the actions.

        Args:
            random: the run's source of random numbers.
            happened: the number of faults that have happened already.
        """
        constants = self.constants
        kinds = getattr(constants, "faults", None)
        most = getattr(constants, "max_faults", 0)
        likely = random.choice(LIKELY)
        if most:
            more = random.randint(1, most) if likely else 0
            constants = replace(constants, max_faults=min(happened + more, most))
            if kinds is not None:
                chosen = frozenset(kind for kind in sorted(kinds) if random.random() < likely)
                constants = replace(constants, faults=chosen)
        weights = {action.name: 2.0 ** random.uniform(-3.0, 3.0) for action in self._actions}
        seldom = 2.0 ** -max(0.0, random.uniform(-SELDOM, SELDOM))
        for name in sorted(self.layer.walk.kinds):
            weights[name] *= seldom
        for name in sorted(self.layer.walk.faults):
            weights[name] *= seldom
            if random.random() >= likely:
                del weights[name]
        return constants, weights

    def _swarm_of_actors(self, random: Random) -> dict[str, "_Candidates"]:
        """The instances of the actions in which only some of the instances, partitions and the like take part."""
        chosen: dict[str, frozenset[Hashable]] = {}
        for name, values in self._axes.items():
            if random.random() < 0.5:
                count = 1 if random.random() < 0.5 else random.randint(1, len(values))
                chosen[name] = frozenset(random.sample(values, count))
        return {action.name: self._limited(action, chosen) for action in self._actions}

    def _limited(self, action: Action, chosen: Mapping[str, frozenset[Hashable]]) -> "_Candidates":
        limits = tuple((place, chosen[name]) for place, name in enumerate(action.domains) if name in chosen)
        known = self._known_candidates.get((action.name, limits))
        if known is None:
            every = self._instances.get(action.name, [])
            kept = [one for one in every if all(one.arguments[place] in some for place, some in limits)]
            known = _Candidates(action, kept if limits else every, limits)
            self._known_candidates[action.name, limits] = known
        return known

    def _draw(
        self, state: Any, clocks: "_Clocks", coverage: Coverage, corpus: Corpus | None
    ) -> tuple[Instance, Any, bool] | None:
        """The next step: the first enabled one of the actions in the order in which their clocks ring.

        With a corpus, mostly a step to a state that no walk has visited, if there is any.

        Returns:
            The step, the state after, and whether no walk has visited it.
        """
        known: tuple[Instance, Any, bool] | None = None
        for instance, after in self._enabled(state, clocks, coverage):
            is_new = corpus is None or not corpus.came_by(self._values(after))
            if is_new or clocks.random.random() < AGAIN:
                clocks.wind()
                return instance, after, is_new
            known = known or (instance, after, False)
        if known is not None:
            clocks.wind()
        return known

    def _enabled(self, state: Any, clocks: "_Clocks", coverage: Coverage) -> Iterator[tuple[Instance, Any]]:
        """The steps within the bounds and the states after: some of each action as its clock rings, then the others."""
        left: list[Sequence[Instance]] = []
        while (name := clocks.next()) is not None:
            every = self._worth_a_try(name, state, clocks.random)
            yield from self._steps(state, every[:MOST_TRIES], coverage)
            if len(every) > MOST_TRIES:
                left.append(every[MOST_TRIES:])
        for others in clocks.random.sample(left, len(left)):
            yield from self._steps(state, others, coverage)

    def _steps(self, state: Any, instances: Sequence[Instance], coverage: Coverage) -> Iterator[tuple[Instance, Any]]:
        for instance in instances:
            after = self._attempt(state, instance, coverage)
            if after is not None and self._within(after):
                yield instance, after

    def _worth_a_try(self, name: str, state: Any, random: Random) -> Sequence[Instance]:
        """Instances of an action that are worth a try, in turn from one that is drawn."""
        candidates = self._candidates[name]
        possible = self.layer.walk.possible.get(name)
        if possible is None:
            every = candidates.instances
        else:
            action = candidates.action
            every = [Instance(action, given) for given in possible(state) if candidates.allows(given)]
            if random.random() < RARELY and all(self._domains[name]):
                every = [Instance(action, tuple(random.choice(values) for values in self._domains[name])), *every]
        count = len(every)
        if count < 2:
            return every
        first = int(random.random() * count)
        return every[first:] + every[:first]

    @staticmethod
    def _attempt(state: Any, instance: Instance, coverage: Coverage) -> Any:
        try:
            return getattr(state, instance.action.method)(*instance.arguments)
        except NotEnabled as refusal:
            coverage.refusals[instance.action.name, refusal.args[0]] += 1
        except Rejected as refusal:
            coverage.refusals[instance.action.name, refusal.code.name] += 1
        return None

    def _is_fault(self, instance: Instance, before: Any, after: Any) -> bool:
        if instance.action.name in self._faults:
            return True
        return self._counts_faults and bool(after.faults != before.faults)

    # --- the end of a run

    def _come_to_rest(self, state: Any, random: Random) -> tuple[Wrong | None, list[Instance]]:
        taken: list[Instance] = []
        if not self.judge.goals:
            return None, taken
        self.fairness.begin()
        values, spec = self._values(state), self.spec(state)
        while len(taken) < MOST_FAIR_STEPS:
            found = self.fairness.next(state, spec, random, self.layer.walk.possible)
            if found is None:
                return None if self.fairness.cut_off else self.judge.at_rest(spec), taken
            instance, state_after = found
            taken.append(instance)
            values, after, changed = self._after(values, spec, state_after)
            wrong = self.judge.step(spec, after, changed)
            state, spec = state_after, after
            if wrong is not None:
                return wrong, taken
        return Wrong(NOT_AT_REST, f"does not come to rest in {MOST_FAIR_STEPS} steps"), taken

    # --- replay

    def alike(self, state: Any, instance: Instance) -> Iterator[tuple[Instance, Any]]:
        """A step and those that differ from it in numbers only, as far as they can be taken, and the states after."""
        name, shape = instance.action.name, _shape(instance.arguments)
        possible = self.layer.walk.possible.get(name)
        if possible is None:
            others = self._of_shape.get((name, shape), [])
        else:
            others = [Instance(instance.action, given) for given in possible(state) if _shape(given) == shape]
        for other in dict.fromkeys((instance, *others)):
            after = attempt(state, other)
            if not isinstance(after, (NotEnabled, Rejected)):
                yield other, after

    def judged(self, before: Any, after: Any) -> Wrong | None:
        """The property that a single step violates."""
        values, spec = self._values(before), self.spec(before)
        _, spec_after, changed = self._after(values, spec, after)
        return self.judge.step(spec, spec_after, changed)

    def replay(
        self, schedule: Sequence[Instance], constants: Any = None, seed: int | None = None
    ) -> tuple[Wrong | None, list[Instance], list[Any]]:
        """The violation of a schedule, its steps that can be taken, and the states along them.

        Args:
            schedule: the steps. One that is not enabled is taken with other numbers (such as the transaction's, when an
                earlier one was left out), or skipped.
            constants: the run's constants; by default those in which every fault may happen.
            seed: if given, the run comes to rest after the schedule, in the order that the seed determines.
        """
        self._forget()
        state = self.initial(constants or self.constants)
        states, taken = [state], []
        values, spec = self._values(state), self.spec(state)
        wrong = self.judge.first(spec)
        for instance in schedule:
            if wrong is not None:
                break
            found = next(self.alike(state, instance), None)
            if found is None:
                continue
            step, after = found
            values, after_spec, changed = self._after(values, spec, after)
            wrong = self.judge.step(spec, after_spec, changed)
            taken.append(step)
            states.append(after)
            state, spec = after, after_spec
        if wrong is None and seed is not None:
            wrong, fair = self._come_to_rest(state, Random(f"{self.layer.name} {seed} at rest"))
            for instance in fair:
                state = getattr(state, instance.action.method)(*instance.arguments)
                states.append(state)
            taken += fair
        return wrong, taken, states
