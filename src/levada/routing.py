"""Key → partition: one implementation for broker, client and Spark.

- `fnv1a64`: FNV-1a, 64 bits, modulo the number of partitions. Topics created natively.
- `murmur2`: as Java's Kafka client: murmur2 with seed 0x9747b28c, sign bit cleared, modulo. Topics created over the Kafka
  wire, so that Java, librdkafka (`murmur2_random`), kafka-python and Spark put a key where we do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

_FNV_OFFSET_BASIS: Final = 14695981039346656037
_FNV_PRIME: Final = 1099511628211
_MASK_64: Final = 2**64 - 1
_MASK_32: Final = 2**32 - 1
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_M: Final = 0x5BD1E995


def fnv1a64(key: bytes) -> int:
    """FNV-1a of the key, from 0 to 2⁶⁴ − 1."""
    value = _FNV_OFFSET_BASIS
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK_64
    return value


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 of the key, from 0 to 2³² − 1 (Java prints the same bits as a signed int)."""
    length = len(key)
    value = _MURMUR_SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MURMUR_M & _MASK_32
        word = (word ^ word >> 24) * _MURMUR_M & _MASK_32
        value = (value * _MURMUR_M & _MASK_32) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _MURMUR_M & _MASK_32
    value = (value ^ value >> 13) * _MURMUR_M & _MASK_32
    return value ^ value >> 15


def _by_fnv1a64(key: bytes, partitions: int) -> int:
    return fnv1a64(key) % partitions


def _by_murmur2(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


#: The values of `levada.router`.
ROUTERS: Final[Mapping[str, Callable[[bytes, int], int]]] = {"fnv1a64": _by_fnv1a64, "murmur2": _by_murmur2}


def partition_for(key: bytes, router: str, partitions: int) -> int:
    """The partition a non-empty key belongs to. Keyless records are spread by the broker, not here."""
    return ROUTERS[router](key, partitions)
