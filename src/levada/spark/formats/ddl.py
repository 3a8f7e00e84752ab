"""Spark's DDL ⇄ Arrow types, without a JVM: an executor has none, and neither has the process that plans a read.

    id BIGINT, name STRING NOT NULL COMMENT 'as written', tags ARRAY<STRING>, at STRUCT<x: DOUBLE, y: DOUBLE>

Every field may be null, whatever is said: what is read was written by others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from levada.errors import LevadaError


class WrongSchema(LevadaError, ValueError):
    """The schema cannot be understood, or has a type that the format cannot hold."""


TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final = {kind: name for name, kind in _PLAIN.items()}
_SYNONYMS: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")


def struct_of(ddl: str) -> pa.StructType:
    """The type of a row: `a INT, b STRING` or `STRUCT<a: INT, b: STRING>`. WrongSchema."""
    parser = _Parser(ddl)
    if parser.tokens[:2] == [("word", "struct"), ("sign", "<")]:
        kind = parser.type()
    else:
        kind = pa.struct(parser.fields(""))
    parser.expect("")
    return kind


class _Parser:
    """A descent through the tokens: (kind, text), of which words are in lower case but for names in backticks."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens: list[tuple[str, str]] = []
        self.raw: list[str] = []
        self.at = 0
        place, end = 0, len(ddl.rstrip())
        while place < end:
            found = _TOKEN.match(ddl, place)
            if found is None:
                raise self.wrong(f"at character {place + 1}, {ddl[place]!r} is not expected")
            quoted, text, word, sign = found.groups()
            self.raw.append(quoted.replace("``", "`") if quoted else word or text or sign)
            self.tokens.append(
                ("name", quoted)
                if quoted
                else ("text", text)
                if text
                else ("word", word.lower())
                if word
                else ("sign", sign)
            )
            place = found.end()

    def wrong(self, why: str) -> WrongSchema:
        return WrongSchema(
            f"the schema {self.ddl!r} cannot be read: {why}; an example is: id BIGINT, tags ARRAY<STRING>"
        )

    def peek(self) -> str:
        """The sign or word that comes next; empty at the end."""
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        return "" if kind in ("name", "text") else text

    def expect(self, sign: str) -> None:
        """This comes next, or it is wrong; empty for the end."""
        if self.peek() != sign or (not sign and self.at < len(self.tokens)):
            found = self.raw[self.at] if self.at < len(self.tokens) else "the end"
            raise self.wrong(f"{sign or 'the end'} is expected where {found} is")
        self.at += 1

    def name(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] not in ("name", "word"):
            found = self.raw[self.at] if self.at < len(self.tokens) else "the end"
            raise self.wrong(f"a name is expected where {found} is")
        self.at += 1
        return self.raw[self.at - 1]

    def fields(self, closing: str) -> list[pa.Field]:
        """Fields up to this sign."""
        found: dict[str, pa.Field] = {}
        while True:
            name = self.name()
            if name in found:
                raise self.wrong(f"there are two fields {name}")
            if self.peek() == ":":
                self.at += 1
            found[name] = pa.field(name, self.type())
            self._skip_remarks()
            if self.peek() != ",":
                break
            self.at += 1
        if closing:
            self.expect(closing)
        return list(found.values())

    def _skip_remarks(self) -> None:
        if self.peek() == "not":
            self.at += 1
            self.expect("null")
        if self.peek() == "comment":
            self.at += 1
            if self.at >= len(self.tokens) or self.tokens[self.at][0] != "text":
                raise self.wrong("after COMMENT a text in quotes is expected")
            self.at += 1

    def type(self) -> pa.DataType:
        word = self.name()
        kind = _SYNONYMS.get(word.lower(), word.lower())
        if kind in _PLAIN:
            return _PLAIN[kind]
        match kind:
            case "decimal":
                return self._decimal()
            case "array":
                self.expect("<")
                element = self.type()
                self.expect(">")
                return pa.list_(pa.field("element", element))
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                value = self.type()
                self.expect(">")
                return pa.map_(key, value)
            case "struct":
                self.expect("<")
                return pa.struct(self.fields(">"))
        raise self.wrong(f"there is no type {word}; {', '.join(_PLAIN)}, decimal(p, s), array, map and struct are")

    def _decimal(self) -> pa.DataType:
        digits, scale = 10, 0
        if self.peek() == "(":
            self.at += 1
            digits = self._number()
            if self.peek() == ",":
                self.at += 1
                scale = self._number()
            self.expect(")")
        if not 1 <= digits <= 38 or scale > digits:
            raise self.wrong(f"decimal({digits}, {scale}) does not exist: 1 to 38 digits, and no more behind the point")
        return pa.decimal128(digits, scale)

    def _number(self) -> int:
        word = self.name()
        if not word.isdecimal():
            raise self.wrong(f"a number is expected where {word} is")
        return int(word)


def ddl_of(kind: pa.DataType) -> str:
    """An Arrow type in Spark's words. WrongSchema for one that Spark does not have."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)},{ddl_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{ddl_of(field.type)}' for field in kind)}>"
    raise WrongSchema(f"Spark has no type for {kind}")


def ddl_of_schema(schema: pa.Schema) -> str:
    """A schema as the DDL of a table."""
    return ", ".join(f"{_quoted(field.name)} {ddl_of(field.type)}" for field in schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
