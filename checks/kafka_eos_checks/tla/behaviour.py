"""A behaviour of a specification: its steps, each with the state after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafka_eos.machines.spec_mapping import SpecValue

State: TypeAlias = Mapping[str, SpecValue]
"""The values of a state, by variable."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a behaviour.

    Attributes:
        action: the action with its arguments where they are known; ``Init`` for the first state.
        state: the state after the step, by variable.
    """

    action: str
    state: State
