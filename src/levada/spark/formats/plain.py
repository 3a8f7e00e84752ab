"""`raw`: bytes as they are. `string`: UTF-8."""

from __future__ import annotations

import pyarrow as pa

from levada.spark.formats.reading import Read, salvaged


class Raw:
    """Bytes, of which nothing is bad."""

    name = "raw"
    type = pa.binary()

    def read(self, values: pa.Array, *, first_only: bool = False) -> Read:
        return Read(values, {})


class String:
    """Text. The bytes are checked, since what is not UTF-8 is mended in silence further on."""

    name = "string"
    type = pa.string()

    def read(self, values: pa.Array, *, first_only: bool = False) -> Read:
        def text(begin: int, end: int) -> pa.Array:
            try:
                return values[begin:end].cast(pa.string())
            except pa.ArrowInvalid:
                raise ValueError("it is not UTF-8") from None

        return salvaged(text, len(values), self.type, first_only=first_only)
