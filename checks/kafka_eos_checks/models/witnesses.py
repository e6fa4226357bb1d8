"""Witnesses: a property that holds proves something only if a run reaches the case that it is about.

The witness of ``AllOrNone`` is ``AllOrNoneWitness``, defined next to it: a predicate of a state, or of a step if there
is a prime in it, that is true where the property could break if the rules were wrong. TLC evaluates the witnesses of a
model's properties in the run that checks them. Each must be true somewhere, so that the property is put to the test,
and false somewhere, since a witness that is always true shows nothing. The properties that a model names under
``silent`` are checked too, but prove nothing with its constants: their witnesses must stay out of reach.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Definition

SUFFIX = "Witness"
_REGISTER = 2001  # the first of TLC's registers that count witnesses; probes have those before
_SEEN = {True: "witness true: ", False: "witness false: "}
_PRIMED = {"prime", "unchanged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The witness of a property.

    Attributes:
        name: the property's name.
        operator: the operator's name.
        of_steps: whether it is a predicate of steps instead of states.
        variables: the variables of its module.
    """

    name: str
    operator: str
    of_steps: bool
    variables: tuple[str, ...]

    @property
    def check(self) -> str:
        """The name of the formula that TLC evaluates: always true, and says once what the witness was."""
        return f"Watch__{self.name}"

    def definition(self, register: int) -> str:
        """The formula, with two of TLC's registers; one more is in the next place."""
        said = [
            f'(TLCSet({number}, TRUE) /\\ PrintT("{_SEEN[value]}{self.name}"))'
            for number, value in ((register, True), (register + 1, False))
        ]
        once = f"IF {self.operator} THEN TLCGet({register}) \\/ {said[0]} ELSE TLCGet({register + 1}) \\/ {said[1]}"
        both = f"(TLCGet({register}) /\\ TLCGet({register + 1})) \\/ {once}"
        formula = f"[][{both}]_<<{', '.join(self.variables)}>>" if self.of_steps else both
        return f"ASSUME TLCSet({register}, FALSE) /\\ TLCSet({register + 1}, FALSE)\n{self.check} == {formula}"


def witnesses(model: Model) -> list[Witness]:
    """The witnesses of the properties that a model checks, of those that have one."""
    folder = ModuleFolder(model.spec)
    operators = folder.operators(model.module)
    variables = tuple(dict.fromkeys(name for module in folder.chain(model.module) for name in module.variables))
    named = [(name, name + SUFFIX) for name in (*model.invariants, *model.properties) if name + SUFFIX in operators]
    return [
        Witness(
            name=name,
            operator=operator,
            of_steps=_has_prime(operators[operator][1].body, operators, set()),
            variables=variables,
        )
        for name, operator in named
    ]


def _has_prime(tree: object, operators: Mapping[str, tuple[str, Definition]], seen: set[str]) -> bool:
    """Whether an expression, or an operator that it names, has a prime."""
    if not isinstance(tree, tuple):
        return False
    if tree and tree[0] in _PRIMED:
        return True
    if tree and tree[0] == "call" and tree[1] in operators and tree[1] not in seen:
        seen.add(tree[1])
        if _has_prime(operators[tree[1]][1].body, operators, seen):
            return True
    return any(_has_prime(part, operators, seen) for part in tree)


def definitions(watched: Iterable[Witness]) -> str:
    """TLA+ text that defines the formulas that TLC evaluates."""
    return "\n".join(witness.definition(_REGISTER + 2 * place) for place, witness in enumerate(watched))


def unreached(model: Model, prints: Iterable[str]) -> Iterator[str]:
    """The properties of a model whose witnesses a run of TLC has not reached.

    Args:
        model: a model that holds.
        prints: the lines that TLC printed in the run.
    """
    reached = {line.strip('"') for line in prints}
    for witness in witnesses(model):
        if f"{_SEEN[True]}{witness.name}" not in reached:
            yield witness.name


def problems(model: Model, prints: Iterable[str]) -> Iterator[str]:
    """The faults in the witnesses of a model's properties that a run of TLC shows, a line each.

    Args:
        model: a model that holds.
        prints: the lines that TLC printed in the run.
    """
    lines = {line.strip('"') for line in prints}
    of_property = {witness.name: witness for witness in witnesses(model)}
    for name in (*model.invariants, *model.properties):
        operator = name + SUFFIX
        if name not in of_property:
            yield f"{name} has no witness; define {operator} beside it"
            continue
        true, false = (f"{_SEEN[value]}{name}" in lines for value in (True, False))
        if true and name in model.silent:
            yield f"{operator} is reached; delete {name} from 'silent'"
        elif not true and name not in model.silent:
            yield f"{name} says nothing here: {operator} is never reached; widen the constants"
        elif true and not false:
            yield f"{operator} is always true, which shows nothing of {name}; say what {name} speaks of"


def verdict(registry: Registry) -> Verdict:
    """Whether every property that a model checks says something, as far as the registry shows without TLC.

    A property has a witness, and some model that checks it does not have it under ``silent``.
    """
    checked: dict[tuple[str, str], list[Model]] = {}
    witnessed: set[tuple[str, str]] = set()
    holding = [model for model in registry.models.values() if not model.expect.violates]
    for model in holding:
        witnessed |= {(model.module, witness.name) for witness in witnesses(model)}
        for name in (*model.invariants, *model.properties):
            checked.setdefault((model.module, name), []).append(model)
    lines = []
    for (module, name), models in sorted(checked.items()):
        named = f"{module}!{name}"
        if (module, name) not in witnessed:
            lines.append(f"{named} has no witness; define {name}{SUFFIX} beside it ({models[0].name} checks it)")
        elif all(name in model.silent for model in models):
            lines.append(f"{named} says nothing in any model; give one the constants that put it to the test")
    return Verdict(
        check="witness",
        name="every property",
        expected="says something",
        found=f"{len(lines)} say nothing" if lines else "says something",
        ok=not lines,
        figures={
            "properties": len(checked),
            "models": len(holding),
            "silent": sum(len(model.silent) for model in holding),
        },
        evidence="\n".join(lines),
        title="each property that a model checks has a witness, and a model that reaches it",
    )
