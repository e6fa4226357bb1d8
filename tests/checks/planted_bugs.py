"""Runs every contract, then each with a bug in what it is about, and prints the verdicts as JSON.

A program of its own: CrossHair looks into every call that Python makes, those of pytest too.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from kafka_eos import record_batch, varint
from kafka_eos.producer_state import Limits, Log
from kafka_eos.read_committed import ReadCommitted
from kafka_eos.record_batch import Record
from kafka_eos.transaction_coordinator import Rules
from kafka_eos.transactional_partition import TransactionalPartition
from kafka_eos_checks import mutants
from kafka_eos_checks.contracts import conditions
from kafka_eos_checks.contracts.command import check
from kafka_eos_checks.verdict import Verdict

SECONDS = 1.5  # of CPU time, for a contract with too many paths to run them all
ENOUGH = 20.0  # for the others, which take less than one
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
    ("sequences", conditions.sequence_goes_on_by_the_records, Limits, "next_sequence", mutants.no_wrap),
    ("append guards", conditions.leader_takes_what_comes_next, Log, "is_in_sequence", mutants.no_sequence_check),
    ("append guards", conditions.leader_takes_what_comes_next, Log, "is_fenced", mutants.no_fencing),
    ("epochs", conditions.epochs_have_an_end, Rules, "fencing_epoch", mutants.every_fence_bumps),
    ("varint", conditions.varint_comes_back, varint, "_encode", encoded_with_a_bit_too_many),
    ("varint", conditions.any_bytes_are_a_varint_or_refused, conditions, "decode_varint", decoded_too_far),
    ("batch codec", conditions.record_comes_back, record_batch, "_encode_nullable_bytes", null_is_empty),
    ("batch codec", conditions.any_bytes_are_records_or_refused, conditions, "decode_records", no_records),
    ("last stable offset", conditions.last_stable_offset_is_the_least, TransactionalPartition, "first_unstable_offset",
     mutants.last_unstable_offset),
    ("marker guards", conditions.leader_fences_older_epochs, TransactionalPartition, "is_old_marker",
     mutants.own_epoch_ends),
    ("aborted index", conditions.aborted_are_listed, ReadCommitted, "ends_scan", mutants.stops_at_first_behind),
    ("aborted index", conditions.aborted_are_dropped, ReadCommitted, "has_begun", mutants.begun_before),
)  # fmt: skip


def as_they_are() -> Iterator[Verdict]:
    for module, contracts in conditions.CONTRACTS.items():
        for contract in contracts:
            yield check(module, contract, SECONDS if module in LARGE else ENOUGH)


def with_bugs() -> Iterator[Verdict]:
    for module, contract, owner, rule, bug in PLANTED:
        right = getattr(owner, rule)
        setattr(owner, rule, bug)
        yield check(module, contract, ENOUGH)
        setattr(owner, rule, right)


if __name__ == "__main__":
    found = {"as they are": as_they_are(), "with bugs": with_bugs()}
    json.dump({name: [verdict.to_json() for verdict in verdicts] for name, verdicts in found.items()}, sys.stdout)
