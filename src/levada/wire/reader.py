"""Bytes → Message: for each message and version, one Python function is written from its schema and compiled.

All nesting is written out in line, neighbouring fixed-size fields are unpacked in one call, and a struct is built by one call,
so a Heartbeat is read in about 2 µs. What is refused is what Kafka refuses: bytes that end too soon, null where the
schema allows none, strings above 32,767 bytes, arrays that claim more elements than there are bytes, endless varints.
Text that is not UTF-8 is read with replacement characters, unknown tags are skipped, bytes after the message are ignored,
all as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from levada.errors import MalformedFrame
from levada.wire import message, primitives
from levada.wire.schema import ZERO_UUID, Field, Kind
from levada.wire.schema import message as schema_of
from levada.wire.source import FIXED, Source

Reader = Callable[[bytes], message.Message]

_NAMES = {
    "long_uvarint": primitives.long_uvarint,
    "read_uvarint": primitives.read_uvarint,
    "skip_tags": primitives.skip_tags,
    "uuid_of": primitives.uuid_of,
    "cut_short": primitives.cut_short,
    "forbidden_null": primitives.forbidden_null,
    "MalformedFrame": MalformedFrame,
    "iter_unpack": struct.iter_unpack,
}


def compile_reader(api_key: int, version: int, kind: Kind) -> Reader:
    """The function that reads this message in this version."""
    schema = schema_of(api_key, kind)
    flexible = schema.flexible is not None and version >= schema.flexible
    title = f"{schema.name} {kind} {version}"
    writer = _ReaderSource(title, version, flexible)
    return writer.build(f"{schema.name}{kind.capitalize()}", schema.fields)


class _ReaderSource:
    def __init__(self, title: str, version: int, flexible: bool) -> None:
        self.source = Source(title, _NAMES)
        self.version = version
        self.flexible = flexible
        #: Fixed-size fields that lie together and are unpacked at once: (variable, letter).
        self.run: list[tuple[str, str]] = []
        #: What is to be done to them after that.
        self.after: list[str] = []

    def build(self, name: str, fields: tuple[Field, ...]) -> Reader:
        line = self.source.line
        with self.source.block("def read(b):"):
            line("p = 0")
            line("end = len(b)")
            result = self.struct(name, fields)
            with self.source.block("if p > end:"):
                line("raise MalformedFrame('the frame ends too soon')")
            line(f"return {result}")
        reader: Reader = self.source.compiled("read")
        return reader

    def struct(self, name: str, fields: tuple[Field, ...]) -> str:
        """Lines that read a struct; the expression that builds it."""
        present = [field for field in fields if self.version in field.versions]
        values = {field.name: self.field(field) for field in present if field.tag is None}
        self.flush()
        tagged = [field for field in present if field.tag is not None]
        if self.flexible:
            values.update(self.tags(tagged))
        kind = self.source.name(struct_class(name, fields, [field.name for field in present]), "C")
        return f"{kind}({', '.join(values[field.name] for field in present)})"

    def field(self, field: Field) -> str:
        """Lines that read a field; the variable that holds it."""
        target = self.source.fresh()
        if field.is_array:
            self.array(field, target)
        elif field.type == "struct":
            self.nested(field, target)
        elif field.type in FIXED:
            self.fixed(field.type, target)
        else:
            self.text_or_bytes(field, target)
        return target

    def fixed(self, kind: str, target: str) -> None:
        self.run.append((target, FIXED[kind]))
        if kind == "uuid":
            self.after.append(f"{target} = uuid_of({target})")

    def flush(self) -> None:
        """Unpack the fixed-size fields seen so far."""
        if self.run:
            letters = "".join(letter for _, letter in self.run)
            names = "".join(f"{name}, " for name, _ in self.run)
            unpack = self.source.unpacker(letters)
            self.source.line(f"{names}= {unpack}(b, p)")
            self.source.line(f"p += {struct.calcsize('>' + letters)}")
            for line in self.after:
                self.source.line(line)
            self.run, self.after = [], []

    def length(self, letter: str) -> str:
        """Lines that read a length; −1 is null."""
        size = self.source.fresh("n")
        if not self.flexible:
            self.run.append((size, letter))
            self.flush()
            return size
        self.flush()
        self.source.line(f"{size} = b[p] - 1")
        self.source.line("p += 1")
        with self.source.block(f"if {size} > 126:"):
            self.source.line(f"{size}, p = long_uvarint(b, {size} + 1, p)")
            self.source.line(f"{size} -= 1")
        return size

    def null(self, field: Field, size: str, target: str) -> None:
        with self.source.block(f"if {size} < 0:"):
            if self.nullable(field):
                self.source.line(f"{target} = None")
            else:
                self.source.line(f"raise forbidden_null({field.name!r})")

    def nullable(self, field: Field) -> bool:
        return field.nullable is not None and self.version in field.nullable

    def text_or_bytes(self, field: Field, target: str) -> None:
        is_text = field.type == "string"
        size = self.length("h" if is_text else "i")
        self.null(field, size, target)
        with self.source.block("else:"):
            if is_text and self.flexible:
                with self.source.block(f"if {size} > 32767:"):
                    self.source.line(f"raise MalformedFrame(f'{field.name} is {{{size}}} bytes long')")
            decode = ".decode('utf-8', 'replace')" if is_text else ""
            self.source.line(f"{target} = b[p:p + {size}]{decode}")
            self.source.line(f"p += {size}")

    def array(self, field: Field, target: str) -> None:
        size = self.length("i")
        self.null(field, size, target)
        letter = FIXED.get(field.type)
        width = struct.calcsize(">" + letter) if letter else 1
        with self.source.block(f"elif {size} * {width} > end - p:"):
            self.source.line(f"raise cut_short({size}, end - p)")
        with self.source.block("else:"):
            if letter:
                item = "uuid_of(i)" if field.type == "uuid" else "i"
                self.source.line(f"{target} = [{item} for i, in iter_unpack('>{letter}', b[p:p + {size} * {width}])]")
                self.source.line(f"p += {size} * {width}")
                return
            self.source.line(f"{target} = []")
            with self.source.block(f"for _ in range({size}):"):
                item = self.element(field)
                self.source.line(f"{target}.append({item})")

    def element(self, field: Field) -> str:
        """Lines that read one element of an array of structs, strings or bytes."""
        if field.type == "struct":
            return self.struct(class_name(field), field.fields)
        item = self.source.fresh()
        self.text_or_bytes(field._replace(is_array=False, nullable=None), item)
        return item

    def nested(self, field: Field, target: str) -> None:
        self.flush()
        if not self.nullable(field):
            self.source.line(f"{target} = {self.struct(class_name(field), field.fields)}")
            return
        marker = self.source.fresh("n")
        self.fixed("int8", marker)
        self.flush()
        self.null(field, marker, target)
        with self.source.block("else:"):
            self.source.line(f"{target} = {self.struct(class_name(field), field.fields)}")

    def tags(self, tagged: list[Field]) -> dict[str, str]:
        """Lines that read the tagged fields at the end of a struct."""
        if not tagged:
            with self.source.block("if b[p]:"):
                self.source.line("p = skip_tags(b, p)")
            with self.source.block("else:"):
                self.source.line("p += 1")
            return {}
        values = {field.name: self.source.fresh() for field in tagged}
        for field in tagged:
            self.source.line(f"{values[field.name]} = {self.source.name(default_of(field), 'D')}")
        count, tag, stop = self.source.fresh("n"), self.source.fresh("t"), self.source.fresh("e")
        self.source.line(f"{count}, p = read_uvarint(b, p)")
        with self.source.block(f"for _ in range({count}):"):
            self.source.line(f"{tag}, p = read_uvarint(b, p)")
            self.source.line(f"{stop}, p = read_uvarint(b, p)")
            self.source.line(f"{stop} += p")
            for field in tagged:
                with self.source.block(f"if {tag} == {field.tag}:"):
                    value = self.field(field)
                    self.flush()
                    self.source.line(f"{values[field.name]} = {value}")
                    with self.source.block(f"if p != {stop}:"):
                        self.source.line(
                            f"raise MalformedFrame('tagged field {field.name} has another size than it says')"
                        )
            self.source.line(f"p = {stop}")
        return values


def class_name(field: Field) -> str:
    return "".join(word.capitalize() for word in field.name.split("_"))


def struct_class(name: str, fields: tuple[Field, ...], present: list[str]) -> type[message.Message]:
    """A Message class whose constructor takes the present fields in order; the rest is on the class."""
    absent = {field.name: default_of(field) for field in fields if field.name not in present}
    source = Source(f"class {name}", {})
    with source.block(f"def __init__(self{''.join(', ' + name for name in present)}):"):
        for field in present:
            source.line(f"self.{field} = {field}")
    names = tuple(field.name for field in fields)
    return type(name, (message.Message,), {"names": names, **absent, "__init__": source.compiled("__init__")})


def default_of(field: Field) -> Any:
    """The value of a field that the bytes do not carry."""
    if field.type == "struct" and not field.is_array and field.default is not None:
        return struct_class(class_name(field), field.fields, [])()
    return ZERO_UUID if field.type == "uuid" and not field.is_array else field.zero()
