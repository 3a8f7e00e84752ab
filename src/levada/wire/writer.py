"""Fields → bytes: for each message and version, one Python function is written from its schema and compiled.

It takes nested mappings (or messages that were read) under the newest version's names, drops what its version does not carry and
fills in the schema's default for what is not given. A name that no version has, null where the schema allows none, and a number
out of range are a ValueError that names the field: they are the caller's slip, not the peer's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from levada.wire import message, primitives
from levada.wire.schema import ZERO_UUID, Field, Kind
from levada.wire.schema import message as schema_of
from levada.wire.source import FIXED, Source

Writer = Callable[[Mapping[str, Any]], bytes]


def unknown_names(struct_name: str, fields: Mapping[str, Any], known: frozenset[str]) -> ValueError:
    return ValueError(f"{struct_name} has no field {', '.join(sorted(set(fields) - known))}")


def null_value(name: str) -> ValueError:
    return ValueError(f"{name} may not be None")


_NAMES = {
    "uvarint": primitives.uvarint,
    "fields_of": message.fields_of,
    "unknown_names": unknown_names,
    "null_value": null_value,
    "ZERO_UUID": ZERO_UUID,
    "pack": struct.pack,
}


def compile_writer(api_key: int, version: int, kind: Kind) -> Writer:
    """The function that writes this message in this version."""
    schema = schema_of(api_key, kind)
    flexible = schema.flexible is not None and version >= schema.flexible
    source = _WriterSource(f"{schema.name} {kind} {version}", version, flexible)
    write = source.build(f"{schema.name} {kind}", schema.fields)

    def checked(fields: Mapping[str, Any]) -> bytes:
        try:
            return write(fields)
        except (struct.error, TypeError, AttributeError) as error:
            raise ValueError(f"{schema.name} {kind} {version} cannot be written: {error}") from error

    return checked


class _WriterSource:
    def __init__(self, title: str, version: int, flexible: bool) -> None:
        self.source = Source(title, _NAMES)
        self.version = version
        self.flexible = flexible
        #: Fixed-size values that lie together and are packed at once: (expression, letter).
        self.run: list[tuple[str, str]] = []

    def build(self, name: str, fields: tuple[Field, ...]) -> Writer:
        line = self.source.line
        with self.source.block("def write(f):"):
            line("out = bytearray()")
            self.struct(name, fields, "f", "out")
            line("return bytes(out)")
        writer: Writer = self.source.compiled("write")
        return writer

    def struct(self, name: str, fields: tuple[Field, ...], given: str, out: str) -> None:
        """Lines that write the struct whose fields the variable `given` holds."""
        line = self.source.line
        known = frozenset(field.name for field in fields)
        known_name = self.source.name(known, "K")
        with self.source.block(f"if type({given}) is not dict:"):
            line(f"{given} = fields_of({given})")
        with self.source.block(f"if not {given}.keys() <= {known_name}:"):
            line(f"raise unknown_names({name!r}, {given}, {known_name})")
        get = self.source.fresh("g")
        line(f"{get} = {given}.get")
        present = [field for field in fields if self.version in field.versions]
        for field in present:
            if field.tag is None:
                self.field(field, f"{get}({field.name!r}, {self.default(field)})", out)
        self.flush(out)
        if self.flexible:
            tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
            self.tags(tagged, given, out)

    def default(self, field: Field) -> str:
        if field.type == "uuid" and not field.is_array:
            return "ZERO_UUID"
        if field.type == "struct" and not field.is_array and field.default is not None:
            return "{}"
        return repr(field.zero())

    def field(self, field: Field, value: str, out: str) -> None:
        """Lines that write one field, whose value the expression gives."""
        if field.is_array:
            self.array(field, value, out)
        elif field.type == "struct":
            self.nested(field, value, out)
        elif field.type in FIXED:
            self.run.append((f"({value} or ZERO_UUID).bytes" if field.type == "uuid" else value, FIXED[field.type]))
        else:
            self.text_or_bytes(field, value, out)

    def flush(self, out: str) -> None:
        """Pack the fixed-size values seen so far."""
        if self.run:
            pack = self.source.packer("".join(letter for _, letter in self.run))
            self.source.line(f"{out} += {pack}({', '.join(value for value, _ in self.run)})")
            self.run = []

    def length(self, size: str, letter: str, out: str) -> None:
        if self.flexible:
            self.source.line(f"{out} += uvarint({size} + 1)")
        else:
            self.source.line(f"{out} += {self.source.packer(letter)}({size})")

    def null(self, field: Field, value: str, letter: str, out: str) -> None:
        with self.source.block(f"if {value} is None:"):
            if field.nullable is None or self.version not in field.nullable:
                self.source.line(f"raise null_value({field.name!r})")
            else:
                null = b"\0" if self.flexible else struct.pack(">" + letter, -1)
                self.source.line(f"{out} += {null!r}")

    def text_or_bytes(self, field: Field, value: str, out: str) -> None:
        self.flush(out)
        letter = "h" if field.type == "string" else "i"
        held = self.source.fresh("v")
        self.source.line(f"{held} = {value}")
        self.null(field, held, letter, out)
        with self.source.block("else:"):
            if field.type == "string":
                self.source.line(f"{held} = {held}.encode()")
                if self.flexible:
                    with self.source.block(f"if len({held}) > 32767:"):
                        self.source.line(f"raise ValueError('{field.name} is longer than 32767 bytes')")
            self.length(f"len({held})", letter, out)
            self.source.line(f"{out} += {held}")

    def array(self, field: Field, value: str, out: str) -> None:
        self.flush(out)
        held = self.source.fresh("v")
        self.source.line(f"{held} = {value}")
        self.null(field, held, "i", out)
        with self.source.block("else:"):
            self.length(f"len({held})", "i", out)
            letter = FIXED.get(field.type)
            if letter and letter != "16s":
                self.source.line(f"{out} += pack(f'>{{len({held})}}{letter}', *{held})")
                return
            item = self.source.fresh("f")
            with self.source.block(f"for {item} in {held}:"):
                self.element(field, item, out)

    def element(self, field: Field, item: str, out: str) -> None:
        if field.type == "struct":
            self.struct(field.name, field.fields, item, out)
        else:
            self.field(field._replace(is_array=False, nullable=None), item, out)
            self.flush(out)

    def nested(self, field: Field, value: str, out: str) -> None:
        self.flush(out)
        held = self.source.fresh("f")
        self.source.line(f"{held} = {value}")
        if field.nullable is None or self.version not in field.nullable:
            self.struct(field.name, field.fields, held, out)
            return
        with self.source.block(f"if {held} is None:"):
            self.source.line(f"{out} += b'\\xff'")
        with self.source.block("else:"):
            self.source.line(f"{out} += b'\\x01'")
            self.struct(field.name, field.fields, held, out)

    def tags(self, tagged: list[Field], given: str, out: str) -> None:
        """Lines that write the tagged fields: only those given and different from their default."""
        if not tagged:
            self.source.line(f"{out} += b'\\0'")
            return
        count, held = self.source.fresh("n"), self.source.fresh("o")
        self.source.line(f"{count} = 0")
        self.source.line(f"{held} = bytearray()")
        for field in tagged:
            with self.source.block(f"if {field.name!r} in {given}:"):
                self.tag(field, f"{given}[{field.name!r}]", count, held)
        self.source.line(f"{out} += uvarint({count})")
        self.source.line(f"{out} += {held}")

    def tag(self, field: Field, value: str, count: str, held: str) -> None:
        one = self.source.fresh("o")
        self.source.line(f"{one} = bytearray()")
        self.field(field, value, one)
        self.flush(one)
        default = self.default_bytes(field)
        with self.source.block(f"if {one} != {default!r}:"):
            self.source.line(f"{count} += 1")
            self.source.line(f"{held} += uvarint({field.tag}) + uvarint(len({one})) + {one}")

    def default_bytes(self, field: Field) -> bytes:
        """The default as it would be written: a struct may be given as any mapping that means the same."""
        source = _WriterSource(f"default of {field.name}", self.version, self.flexible)
        untagged = field._replace(tag=None)
        return source.build(field.name, (untagged,))({})[:-1]
