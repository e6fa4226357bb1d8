"""The partition of an internal topic that has a transactional.id or a group, and whose leader coordinates it.

Kafka: TransactionStateManager.partitionFor, GroupCoordinatorService.partitionFor, Utils.abs
"""

from functools import lru_cache


@lru_cache(maxsize=10_000)
def coordinator_partition(key: str, partitions: int) -> int:
    """The number of the partition: the hash code that Java gives the text, made positive, modulo their number."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[place : place + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
