"""Python source that is written by a program and compiled once: lines, indentation and the objects they name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Kafka's fixed-size types in the letters of `struct`.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Source:
    """A module that grows line by line. Objects it uses are handed over by name, so nothing is looked up twice."""

    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self.names = dict(names)
        self.lines: list[str] = []
        self._indent = ""
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._indent += " "
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._indent = self._indent[:-1]

    def fresh(self, stem: str = "x") -> str:
        """A name not used before."""
        self._count += 1
        return f"{stem}{self._count}"

    def name(self, value: Any, stem: str) -> str:
        """A name under which the source can say this object."""
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def unpacker(self, letters: str) -> str:
        return self._struct("U_", letters, struct.Struct(">" + letters).unpack_from)

    def packer(self, letters: str) -> str:
        return self._struct("P_", letters, struct.Struct(">" + letters).pack)

    def _struct(self, stem: str, letters: str, function: Callable[..., Any]) -> str:
        self.names.setdefault(stem + letters.replace("?", "o"), function)
        return stem + letters.replace("?", "o")

    def compiled(self, name: str) -> Any:
        """Run the module and return what it defines under this name."""
        exec(compile("\n".join(self.lines), f"<{self.title}>", "exec"), self.names)
        return self.names[name]
