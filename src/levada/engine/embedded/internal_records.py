"""The records Kafka keeps in `__consumer_offsets` and `__transaction_state`, byte for byte.

A key is int16 what it is | its fields. A value is int16 version | its fields in that version. Kafka's own tools and
message formatters read what is written here, and we read what Kafka wrote.

    __consumer_offsets   key 0, 1  OffsetCommit: group, topic, partition → a committed offset
                         key 2     GroupMetadata: group → its generation and members
    __transaction_state  key 0     Transaction: transactional id → its state and partitions

A value of None is a tombstone. A kind of key or a version of a value that is not known here was written by a newer Kafka;
it is `Unknown`, and whoever replays a log passes over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final
from uuid import UUID

from levada.errors import CorruptBatch, MalformedFrame
from levada.wire.primitives import BROKEN, read_uvarint, uvarint
from levada.wire.schema import ZERO_UUID, Field, Message, parse
from levada.wire.source import FIXED

OFFSET_COMMIT_KEY: Final = parse("""
OffsetCommit key 0-1
  group string
  topic string
  partition int32
""")

OFFSET_COMMIT_VALUE: Final = parse("""
OffsetCommit value 0-4 flexible 4
  offset int64
  leader_epoch int32 3+ = -1
  metadata string
  commit_timestamp int64
  expire_timestamp int64 1 = -1
  topic_id uuid 4+ #0
""")

GROUP_METADATA_KEY: Final = parse("""
GroupMetadata key 2-2
  group string
""")

GROUP_METADATA_VALUE: Final = parse("""
GroupMetadata value 0-4 flexible 4
  protocol_type string
  generation int32
  protocol string?
  leader string?
  current_state_timestamp int64 2+ = -1
  members []
    member_id string
    group_instance_id string? 3+ = null
    client_id string
    client_host string
    rebalance_timeout int32 1+ = -1
    session_timeout int32
    subscription bytes
    assignment bytes
""")

TRANSACTION_KEY: Final = parse("""
Transaction key 0-0
  transactional_id string
""")

TRANSACTION_VALUE: Final = parse("""
Transaction value 0-1 flexible 1
  producer_id int64
  previous_producer_id int64 1+ #0 = -1
  next_producer_id int64 1+ #1 = -1
  producer_epoch int16
  next_producer_epoch int16 1+ #3 = -1
  transaction_timeout_ms int32
  transaction_status int8
  transaction_partitions []?
    topic string
    partition_ids []int32
  transaction_last_update_timestamp_ms int64
  transaction_start_timestamp_ms int64
  client_transaction_version int16 1+ #2
""")

_FIXED: Final = {kind: Struct(">" + letter) for kind, letter in FIXED.items()}
_INT16: Final = _FIXED["int16"]
_INT32: Final = _FIXED["int32"]


class Unknown(Exception):
    """The record is of a kind or version that is not known here."""


def write(schema: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """The version, and these fields in it. What this version lacks is dropped, what is not given takes its default."""
    out = bytearray(_INT16.pack(version))
    _write_struct(out, schema.fields, fields, version, _is_flexible(schema, version))
    return bytes(out)


def read(schema: Message, data: bytes) -> dict[str, Any]:
    """The fields, with the schema's default where this version has none. CorruptBatch; Unknown."""
    try:
        version = version_of(data)
        if version not in schema.versions:
            raise Unknown(f"{schema.name} {schema.kind} version {version} is not known here")
        reader = _Reader(data, version, _is_flexible(schema, version))
        fields = reader.struct(schema.fields)
    except (*BROKEN, MalformedFrame) as error:
        raise CorruptBatch(f"not a {schema.name} {schema.kind}: {error}") from error
    if reader.position > len(data):
        raise CorruptBatch(f"a {schema.name} {schema.kind} ends too soon")
    return fields


def version_of(data: bytes) -> int:
    """What a key or value begins with."""
    version: int = _INT16.unpack_from(data)[0]
    return version


def _is_flexible(schema: Message, version: int) -> bool:
    return schema.flexible is not None and version >= schema.flexible


def _default(field: Field) -> Any:
    return ZERO_UUID if field.type == "uuid" else field.zero()


def _write_struct(
    out: bytearray, fields: Sequence[Field], given: Mapping[str, Any], version: int, flexible: bool
) -> None:
    present = [field for field in fields if version in field.versions]
    for field in present:
        if field.tag is None:
            _write_field(out, field, given.get(field.name, _default(field)), version, flexible)
    if flexible:
        tagged = [
            field
            for field in sorted(present, key=lambda field: field.tag or 0)
            if field.tag is not None and given.get(field.name, _default(field)) != _default(field)
        ]
        out += uvarint(len(tagged))
        for field in tagged:
            body = bytearray()
            _write_field(body, field, given[field.name], version, flexible)
            out += uvarint(field.tag or 0) + uvarint(len(body)) + body


def _write_field(out: bytearray, field: Field, value: Any, version: int, flexible: bool) -> None:
    if field.is_array:
        _write_length(out, value, _INT32, flexible)
        for item in value or ():
            if field.type == "struct":
                _write_struct(out, field.fields, item, version, flexible)
            else:
                out += _FIXED[field.type].pack(item)
    elif field.type == "uuid":
        out += value.bytes
    elif field.type in _FIXED:
        out += _FIXED[field.type].pack(value)
    else:
        data = value.encode() if isinstance(value, str) else value
        _write_length(out, data, _INT16 if field.type == "string" else _INT32, flexible)
        out += data or b""


def _write_length(out: bytearray, value: Any, plain: Struct, flexible: bool) -> None:
    """A length, −1 for null; in flexible versions a varint of one more."""
    length = -1 if value is None else len(value)
    out += uvarint(length + 1) if flexible else plain.pack(length)


class _Reader:
    """A place in a value, moving forward."""

    def __init__(self, data: bytes, version: int, flexible: bool) -> None:
        self.data = data
        self.position = _INT16.size
        self.version = version
        self.flexible = flexible

    def struct(self, fields: Sequence[Field]) -> dict[str, Any]:
        found = {field.name: _default(field) for field in fields}
        present = [field for field in fields if self.version in field.versions]
        for field in present:
            if field.tag is None:
                found[field.name] = self.field(field)
        if self.flexible:
            tagged = {field.tag: field for field in present if field.tag is not None}
            for _ in range(self.varint()):
                tag, size = self.varint(), self.varint()
                end = self.position + size
                if tag in tagged:
                    found[tagged[tag].name] = self.field(tagged[tag])
                self.position = end
        return found

    def field(self, field: Field) -> Any:
        if field.is_array:
            return self.array(field)
        if field.type == "uuid":
            return UUID(bytes=self.take(16))
        if field.type in _FIXED:
            return self.fixed(_FIXED[field.type])
        length = self.length(_INT16 if field.type == "string" else _INT32)
        if length < 0:
            return self.null(field)
        data = self.take(length)
        return data.decode() if field.type == "string" else data

    def array(self, field: Field) -> Any:
        length = self.length(_INT32)
        if length < 0:
            return self.null(field)
        if length > len(self.data) - self.position:
            raise MalformedFrame(f"{field.name} claims {length} elements")
        if field.type == "struct":
            return [self.struct(field.fields) for _ in range(length)]
        return [self.fixed(_FIXED[field.type]) for _ in range(length)]

    def null(self, field: Field) -> None:
        if field.nullable is None or self.version not in field.nullable:
            raise MalformedFrame(f"{field.name} may not be null")

    def fixed(self, kind: Struct) -> Any:
        (value,) = kind.unpack_from(self.data, self.position)
        self.position += kind.size
        return value

    def length(self, plain: Struct) -> int:
        length: int = self.varint() - 1 if self.flexible else self.fixed(plain)
        return length

    def varint(self) -> int:
        value, self.position = read_uvarint(self.data, self.position)
        return value

    def take(self, size: int) -> bytes:
        self.position += size
        if self.position > len(self.data):
            raise MalformedFrame("it ends too soon")
        return self.data[self.position - size : self.position]
