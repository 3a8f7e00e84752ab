"""Messages as plain fields ⇄ kio's dataclasses, and random messages: the peer our codec is compared with."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from levada.wire.schema import Field, Kind, message
from support.kio_schemas import EPOCH, entity, name_of, unwrap

MILLISECOND = datetime.timedelta(milliseconds=1)
ERROR_CODES = [int(code) for code in ErrorCode]
LIMITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}


def kio_bytes(api_key: int, version: int, kind: Kind, fields: dict[str, Any]) -> bytes:
    """What kio writes for these fields."""
    cls = entity(api_key, version, kind)
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, to_kio(cls, fields))
    return buffer.getvalue()


def to_kio(cls: type[Any], fields: dict[str, Any]) -> Any:
    return cls(**{f.name: value_to_kio(f, fields[name_of(f)]) for f in dataclasses.fields(cls)})


def value_to_kio(field: Any, value: Any) -> Any:
    inner, is_array, _ = unwrap(field.type)
    if value is None:
        return None
    if is_array:
        one = dataclasses.is_dataclass(inner)
        return tuple(to_kio(inner, item) if one else item for item in value)
    if dataclasses.is_dataclass(inner):
        return to_kio(inner, value)
    match field.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return None if value == -1 and unwrap(field.type)[2] else EPOCH + value * MILLISECOND
        case "uuid":
            return value if value.int else None
    return value


def random_message(api_key: int, version: int, kind: Kind, rng: random.Random) -> dict[str, Any]:
    """Every field that this version carries, with anything that is legal in it."""
    return random_struct(message(api_key, kind).fields, version, rng)


def random_struct(fields: Sequence[Field], version: int, rng: random.Random) -> dict[str, Any]:
    return {field.name: random_field(field, version, rng) for field in fields if version in field.versions}


def random_field(field: Field, version: int, rng: random.Random) -> Any:
    if field.nullable and version in field.nullable and rng.random() < 0.2:
        return None
    # A tagged field that has its default is not written.
    if field.tag is not None and rng.random() < 0.3 and field.type != "struct":
        return list(zero) if isinstance(zero := field.zero(), tuple) else zero
    if field.is_array:
        return [random_value(field, version, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    return random_value(field, version, rng)


def random_value(field: Field, version: int, rng: random.Random) -> Any:
    kind = field.type
    if kind == "struct":
        return random_struct(field.fields, version, rng)
    if field.name == "error_code" or field.name.endswith("_error_code"):
        return rng.choice(ERROR_CODES)
    if field.name.endswith("_ms"):
        return rng.choice((0, 1, 30_000, 2**31 - 1))
    if kind in LIMITS:
        low = 0 if kind.startswith("u") else -(2 ** LIMITS[kind])
        high = 2 ** LIMITS[kind] - 1
        return rng.choice((0, 1, low, high, rng.randint(low, high)))
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return "".join(rng.choice("abc-._ZΩé漢🌊") for _ in range(rng.choice((0, 1, 5, 20, 140))))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 5, 130, 20_000)))
        case "uuid":
            return UUID(int=rng.choice((0, rng.getrandbits(128))))
        case "float64":
            return rng.uniform(-1e9, 1e9)
    raise AssertionError(f"no values known for {kind}")
