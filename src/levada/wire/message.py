"""A message that was read: its fields as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar


class Message:
    """A request, a response or a struct within one.

    It has every field of every version. What its own version does not carry is the schema's default, kept on the class,
    so `vars(message)` is what was read. Arrays are sequences, or None where null is allowed.
    """

    #: All field names, over all versions.
    names: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # it is as mutable as a dict

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


def as_dict(message: Message) -> dict[str, Any]:
    """The message as nested dicts and lists, defaults included: what `write_response` and `write_request` take."""
    return {name: _plain(getattr(message, name)) for name in message.names}


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return as_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def fields_of(value: Mapping[str, Any] | Message) -> Mapping[str, Any]:
    """The fields to write, from a mapping or from a message that was read."""
    return vars(value) if isinstance(value, Message) else value
