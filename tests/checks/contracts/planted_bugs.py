"""Run every contract, those of the codec with a planted bug and the others with mutants, and print verdicts as JSON.

This is a program of its own, because CrossHair analyses every call that Python makes, also those of pytest.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from kafka_eos.formats import record_batch, varint
from kafka_eos.formats.record_batch import Record
from kafka_eos_checks.contracts import conditions
from kafka_eos_checks.contracts.command import check
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.matrix.mutant_contracts import contracts_about, find_by_contract
from kafka_eos_checks.models.registry import Registry

SECONDS = 0.75  # CPU seconds, for a contract with too many paths to run them all
ENOUGH = 20.0  # CPU seconds for the other contracts, which take less than one
LARGE = {"varint", "batch codec"}


def encoded_with_a_bit_too_many(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def decoded_too_far(data: bytes, position: int) -> tuple[int, int]:
    value, end = varint.decode_varint(data, position)
    return value, end + 1


def null_is_empty(value: bytes | None) -> bytes:
    return varint.encode_varint(0 if value is None else len(value)) + (value or b"")


def no_records(data: bytes, count: int) -> tuple[Record, ...]:
    return ()


PLANTED: tuple[tuple[str, Any, Any, str, Any], ...] = (
    ("varint", conditions.varint_comes_back, varint, "_encode", encoded_with_a_bit_too_many),
    ("varint", conditions.any_bytes_are_a_varint_or_refused, conditions, "decode_varint", decoded_too_far),
    ("batch codec", conditions.record_comes_back, record_batch, "_encode_nullable_bytes", null_is_empty),
    ("batch codec", conditions.any_bytes_are_records_or_refused, conditions, "decode_records", no_records),
)


def as_they_are() -> Iterator[Verdict]:
    for module, contracts in conditions.CONTRACTS.items():
        for contract in contracts:
            yield check(module, contract.promise, SECONDS if module in LARGE else ENOUGH)


def with_bugs() -> Iterator[Verdict]:
    for module, promise, owner, rule, bug in PLANTED:
        right = getattr(owner, rule)
        setattr(owner, rule, bug)
        yield check(module, promise, ENOUGH)
        setattr(owner, rule, right)


# A contract is about one call of a rule: none sees what goes wrong over several steps, or which of two errors is first.
UNSEEN = {"FenceAbortsNext", "IdentityBeforePending"}


def with_mutants() -> Iterator[Verdict]:
    for mutant in Registry().mutants.values():
        contracts = contracts_about(mutant)
        if contracts and mutant.name not in UNSEEN:
            yield find_by_contract(mutant, contracts)


def with_a_mutant_of_another_rule() -> Iterator[Verdict]:
    yield find_by_contract(Registry().get("CacheOfOne"), conditions.CONTRACTS["epochs"])


if __name__ == "__main__":
    found = {
        "as they are": as_they_are(),
        "with bugs": with_bugs(),
        "with mutants": with_mutants(),
        "with a mutant of another rule": with_a_mutant_of_another_rule(),
    }
    json.dump({name: [verdict.to_json() for verdict in verdicts] for name, verdicts in found.items()}, sys.stdout)
