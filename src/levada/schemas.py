"""What a schema of values may look like, told without Arrow or Spark: DDL for JSON, JSON for Avro.

    id BIGINT, name STRING NOT NULL COMMENT 'as written', tags ARRAY<STRING>, at STRUCT<x: DOUBLE, y: DOUBLE>

The broker checks with this what a topic is set to; what reads values makes Arrow's types of what is parsed here. Everything that is
wrong is a ValueError, whose text goes after the schema and a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

#: Types without parts.
PLAIN: Final = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
_SYNONYMS: Final[Mapping[str, str]] = {
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
#: How many types may lie in one another.
_DEPTH_MAX: Final = 100
_AVRO_PLAIN: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_AVRO_NAMED: Final = ("record", "error", "enum", "fixed")


class Type(NamedTuple):
    """A type of DDL. `parts` are a struct's fields by name, the `element` of an array, `key` and `value` of a map."""

    name: str
    parts: tuple[tuple[str, Type], ...] = ()
    #: Of a decimal.
    digits: int = 0
    scale: int = 0


def parsed_ddl(ddl: str) -> Type:
    """The struct of a row: `a INT, b STRING` or `STRUCT<a: INT, b: STRING>`. ValueError."""
    parser = _Parser(ddl)
    if parser.tokens[:2] == [("word", "struct"), ("sign", "<")]:
        kind = parser.type()
    else:
        kind = Type("struct", parser.fields(""))
    parser.expect("")
    return kind


def check_json(ddl: str) -> None:
    """Whether JSON can be read as this. ValueError."""
    found = unreadable(parsed_ddl(ddl))
    if found is not None:
        raise ValueError(f"json cannot be read as {found.name}; say which fields there are with struct, or string")


def unreadable(kind: Type) -> Type | None:
    """What JSON cannot be read as, of this and what lies in it."""
    if kind.name in ("map", "binary"):
        return kind
    return next((found for _, part in kind.parts if (found := unreadable(part)) is not None), None)


class _Parser:
    """A descent through the tokens: (kind, text), of which words are in lower case but for names in backticks."""

    def __init__(self, ddl: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.raw: list[str] = []
        self.at = 0
        self._depth = 0
        place, end = 0, len(ddl.rstrip())
        while place < end:
            found = _TOKEN.match(ddl, place)
            if found is None:
                raise ValueError(f"at character {place + 1}, {ddl[place]!r} is not expected")
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

    def peek(self) -> str:
        """The sign or word that comes next; empty at the end."""
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        return "" if kind in ("name", "text") else text

    def expect(self, sign: str) -> None:
        """This comes next, or it is wrong; empty for the end."""
        if self.peek() != sign or (not sign and self.at < len(self.tokens)):
            raise ValueError(f"{sign or 'the end'} is expected where {self._here()} is")
        self.at += 1

    def _here(self) -> str:
        return self.raw[self.at] if self.at < len(self.tokens) else "the end"

    def name(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] not in ("name", "word"):
            raise ValueError(f"a name is expected where {self._here()} is")
        self.at += 1
        return self.raw[self.at - 1]

    def fields(self, closing: str) -> tuple[tuple[str, Type], ...]:
        """Fields up to this sign."""
        found: dict[str, Type] = {}
        while True:
            name = self.name()
            if name in found:
                raise ValueError(f"there are two fields {name}")
            if self.peek() == ":":
                self.at += 1
            found[name] = self.type()
            self._skip_remarks()
            if self.peek() != ",":
                break
            self.at += 1
        if closing:
            self.expect(closing)
        return tuple(found.items())

    def _skip_remarks(self) -> None:
        if self.peek() == "not":
            self.at += 1
            self.expect("null")
        if self.peek() == "comment":
            self.at += 1
            if self.at >= len(self.tokens) or self.tokens[self.at][0] != "text":
                raise ValueError("after COMMENT a text in quotes is expected")
            self.at += 1

    def type(self) -> Type:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ValueError(f"more than {_DEPTH_MAX} types lie in one another")
        kind = self._type()
        self._depth -= 1
        return kind

    def _type(self) -> Type:
        word = self.name()
        kind = _SYNONYMS.get(word.lower(), word.lower())
        if kind in PLAIN:
            return Type(kind)
        match kind:
            case "decimal":
                return self._decimal()
            case "array":
                self.expect("<")
                element = self.type()
                self.expect(">")
                return Type(kind, (("element", element),))
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                value = self.type()
                self.expect(">")
                return Type(kind, (("key", key), ("value", value)))
            case "struct":
                self.expect("<")
                return Type(kind, self.fields(">"))
        raise ValueError(f"there is no type {word}; {', '.join(PLAIN)}, decimal(p, s), array, map and struct are")

    def _decimal(self) -> Type:
        digits, scale = 10, 0
        if self.peek() == "(":
            self.at += 1
            digits = self._number()
            if self.peek() == ",":
                self.at += 1
                scale = self._number()
            self.expect(")")
        if not 1 <= digits <= 38 or scale > digits:
            raise ValueError(f"decimal({digits}, {scale}) does not exist: 1 to 38 digits, and no more behind the point")
        return Type("decimal", digits=digits, scale=scale)

    def _number(self) -> int:
        word = self.name()
        if not word.isdecimal():
            raise ValueError(f"a number is expected where {word} is")
        return int(word)


def check_avro(text: str) -> None:
    """Whether this is an Avro schema, as far as its shape tells: JSON, known types, whole records. ValueError."""
    try:
        schema = json.loads(text)
        names = set(_avro_names(schema))
        _check_avro(schema, names)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("too many types lie in one another") from None


def _avro_names(schema: Any) -> Iterator[str]:
    """Of the types that are declared in it, without their namespaces."""
    if isinstance(schema, list):
        for one in schema:
            yield from _avro_names(one)
    elif isinstance(schema, dict):
        if schema.get("type") in _AVRO_NAMED and isinstance(schema.get("name"), str):
            yield schema["name"].rpartition(".")[2]
        for one in schema.values():
            if isinstance(one, dict | list):
                yield from _avro_names(one)


def _check_avro(schema: Any, names: set[str]) -> None:
    match schema:
        case str():
            if schema not in _AVRO_PLAIN and schema.rpartition(".")[2] not in names:
                raise ValueError(
                    f"there is no Avro type {schema!r}; {', '.join(_AVRO_PLAIN)}, record, enum, fixed, array and map are"
                )
        case [_, *_]:
            for one in schema:
                _check_avro(one, names)
        case {"type": "record" | "error", "name": str(), "fields": [*fields]}:
            for one in fields:
                if not (isinstance(one, dict) and isinstance(one.get("name"), str) and "type" in one):
                    raise ValueError(f"a field of record {schema['name']} needs a name and a type: {json.dumps(one)}")
                _check_avro(one["type"], names)
        case {"type": "record" | "error"}:
            raise ValueError('a record needs "name" and "fields"')
        case {"type": "enum", "name": str(), "symbols": [*_]} | {"type": "fixed", "name": str(), "size": int()}:
            pass
        case {"type": "enum" | "fixed" as kind}:
            raise ValueError(f'{kind} needs "name" and "{"symbols" if kind == "enum" else "size"}"')
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            _check_avro(inner, names)
        case {"type": "array" | "map" as kind}:
            raise ValueError(f'{kind} needs "{"items" if kind == "array" else "values"}"')
        case {"type": kind}:
            _check_avro(kind, names)
        case _:
            raise ValueError(
                'it is no Avro schema; an example is {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'
            )
