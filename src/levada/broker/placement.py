"""Where the copies of a topic's partitions lie on the nodes of a cluster. Pure.

Partition i leads on nodes[i % n]; its replicas wrap on from the leader. There are never more copies than nodes. With n1 to
n3, two copies and four partitions: [n1, n2], [n2, n3], [n3, n1], [n1, n2].
"""

from __future__ import annotations

from collections.abc import Sequence

from levada.errors import InvalidNode, InvalidReplicationFactor


def placement(nodes: Sequence[str], partitions: int, replication_factor: int) -> list[list[str]]:
    """The nodes of every partition, its leader first. InvalidReplicationFactor, InvalidNode."""
    return extended((), nodes, partitions, replication_factor)


def extended(
    existing: Sequence[Sequence[str]], nodes: Sequence[str], partitions: int, replication_factor: int
) -> list[list[str]]:
    """The same for a topic that grows: partitions that are placed stay where they are, whatever became of their nodes."""
    if replication_factor < 1:
        raise InvalidReplicationFactor(f"replication factor {replication_factor}: must be at least 1")
    if not nodes:
        raise InvalidNode("partitions cannot be placed: there are no nodes")
    copies = min(replication_factor, len(nodes))
    added = [
        [nodes[(index + copy) % len(nodes)] for copy in range(copies)] for index in range(len(existing), partitions)
    ]
    return [list(replicas) for replicas in existing] + added
