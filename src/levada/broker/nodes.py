"""The nodes of a cluster: who is in it, and who leads. Pure; the clock is passed in.

A node joins, gives signs of life, and leaves: by saying so, or by giving none for its timeout. The leader is the node with
the smallest id, where numbers in ids count as numbers: n2 comes before n10. This broker itself is always in: it never expires and
cannot leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from levada.config import DAY_MS
from levada.errors import InvalidNode, UnknownNode

ID_LENGTH_MAX: Final = 249
TIMEOUT_MS_DEFAULT: Final = 15_000
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = DAY_MS

_ID: Final = re.compile(r"[A-Za-z0-9._-]+")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_HOST_LENGTH_MAX: Final = 253
_NUMBERS: Final = re.compile(r"([0-9]+)")


class Node(NamedTuple):
    """One node. `address` is host:port for gRPC, `kafka` for Kafka clients where it is known."""

    id: str
    address: str = ""
    kafka: str = ""
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    joined_ms: int = 0
    last_heartbeat_ms: int = 0
    #: This broker itself.
    own: bool = False

    @property
    def deadline_ms(self) -> int:
        """When it is taken for gone, unless it gives a sign of life."""
        return self.last_heartbeat_ms + self.timeout_ms

    def is_at(self, other: Node) -> bool:
        """Is this the same node at the same place, under the same terms?"""
        return self[:4] == other[:4]


def order(node_id: str) -> tuple[list[int | str], str]:
    """Sorts ids as people count: n2 before n10. Of two that count alike (n1, n01), the smaller text comes first."""
    parts = _NUMBERS.split(node_id)  # text, number, text, number, …
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], node_id


class Nodes:
    """Who is in. A refusal (InvalidNode, UnknownNode) changes nothing."""

    def __init__(self, own_id: str, now_ms: int) -> None:
        check_id(own_id)
        self.own_id = own_id
        self._nodes = {own_id: Node(own_id, joined_ms=now_ms, last_heartbeat_ms=now_ms, own=True)}
        self._sorted: Sequence[Node] | None = None

    def all(self) -> Sequence[Node]:
        """By id, so the leader first."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._nodes.values(), key=lambda node: order(node.id)))
        return self._sorted

    def ids(self) -> list[str]:
        return [node.id for node in self.all()]

    def leader(self) -> Node:
        return self.all()[0]

    def get(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def own_at(self, address: str, kafka: str) -> None:
        """Where this broker itself can be reached."""
        self._put(self._nodes[self.own_id]._replace(address=address, kafka=kafka))

    def applicant(self, node_id: str, address: str, now_ms: int, *, kafka: str = "", timeout_ms: int = 0) -> Node:
        """The node that joining so would make; of one that is in already, since when. InvalidNode."""
        check_id(node_id)
        known = self._nodes.get(node_id)
        if known is not None and known.own:
            if address not in ("", known.address):
                raise InvalidNode(
                    f"node {node_id} is this broker itself, at {known.address}; it cannot be at {address}"
                )
            return known._replace(last_heartbeat_ms=now_ms)
        check_address(node_id, address)
        if kafka:
            check_address(node_id, kafka)
        timeout_ms = timeout_ms or TIMEOUT_MS_DEFAULT
        if not TIMEOUT_MS_MIN <= timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidNode(
                f"node {node_id}: a timeout of {timeout_ms} ms; must be from {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX} ms"
            )
        return Node(node_id, address, kafka, timeout_ms, now_ms if known is None else known.joined_ms, now_ms)

    def join(self, node_id: str, address: str, now_ms: int, *, kafka: str = "", timeout_ms: int = 0) -> Node:
        """Add a node, or say where one is now. It is a sign of life. InvalidNode."""
        return self.admit(self.applicant(node_id, address, now_ms, kafka=kafka, timeout_ms=timeout_ms))

    def admit(self, node: Node) -> Node:
        """Take in what `applicant` gave, or what was kept of a node."""
        self._put(node)
        return node

    def heartbeat(self, node_id: str, now_ms: int) -> Node:
        """A sign of life. UnknownNode: it has been given up, and has to join again."""
        return self.admit(self._known(node_id)._replace(last_heartbeat_ms=now_ms))

    def check_leave(self, node_id: str) -> None:
        """UnknownNode; InvalidNode for this broker itself."""
        if self._known(node_id).own:
            raise InvalidNode(f"node {node_id} is this broker itself; it leaves when it is stopped for good")

    def leave(self, node_id: str) -> None:
        """The node is out. UnknownNode; InvalidNode for this broker itself."""
        self.check_leave(node_id)
        self._remove(node_id)

    def expire(self, now_ms: int) -> list[Node]:
        """Put out every node whose time has run out; return them."""
        late = [node for node in self._nodes.values() if not node.own and node.deadline_ms <= now_ms]
        for node in late:
            self._remove(node.id)
        return late

    def next_deadline(self) -> int | None:
        """When `expire` may next have something to do."""
        return min((node.deadline_ms for node in self._nodes.values() if not node.own), default=None)

    def restore(self, kept: Iterable[Node], now_ms: int) -> None:
        """Take in nodes that were kept over a restart: each has one timeout to give a sign of life."""
        for node in kept:
            if node.id != self.own_id:
                self._put(node._replace(last_heartbeat_ms=now_ms, own=False))

    def _known(self, node_id: str) -> Node:
        known = self._nodes.get(node_id)
        if known is None:
            raise UnknownNode(f"there is no node {node_id!r}; the nodes are {', '.join(self.ids())}")
        return known

    def _put(self, node: Node) -> None:
        self._nodes[node.id] = node
        self._sorted = None

    def _remove(self, node_id: str) -> None:
        del self._nodes[node_id]
        self._sorted = None


def check_id(node_id: str) -> None:
    """InvalidNode unless a node can be called so."""
    if not (len(node_id) <= ID_LENGTH_MAX and _ID.fullmatch(node_id)):
        raise InvalidNode(f"node id {node_id!r}: must be 1 to {ID_LENGTH_MAX} of [A-Za-z0-9._-]")


def check_address(node_id: str, address: str) -> None:
    """InvalidNode unless this is host:port; an IPv6 address stands in brackets."""
    host, _, port = address.rpartition(":")
    is_host = len(host) <= _HOST_LENGTH_MAX and _HOST.fullmatch(host)
    if not (is_host and port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise InvalidNode(f"node {node_id}: address {address!r} must be host:port, with a port from 1 to 65535")
