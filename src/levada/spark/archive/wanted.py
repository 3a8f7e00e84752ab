"""What is to be archived, and where: a topic's settings. Light, since every read of a topic asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from levada.spark.formats import Format


class Typed(NamedTuple):
    """What values are read as, besides being kept as they are: `levada.archive.format` and `levada.archive.schema`."""

    name: str = "raw"
    schema: str = ""

    def format(self) -> Format | None:
        """None where values are only kept. WrongSchema."""
        from levada.spark.formats import format_of

        return None if self.name == "raw" else format_of(self.name, schema=self.schema)


class Archive(NamedTuple):
    """A topic and where its history is kept."""

    topic: str
    place: str
    typed: Typed = Typed()
