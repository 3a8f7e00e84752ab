"""Who reads what in a dynamic group: a pure function of who is there, what they had, and what there is.

Promises, for any subscriptions:
- every partition that somebody reads has exactly one owner, who reads its topic;
- loads are as even as the subscriptions allow: where all read the same topics they differ by at most one;
- a partition moves only for the sake of the first two.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise

from levada.engine.port import At

#: Topic → its members, eldest first.
Readers = Mapping[str, list[str]]


def assign(
    subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, int], owned: Mapping[str, Iterable[At]]
) -> dict[str, frozenset[At]]:
    """Member → its partitions.

    `subscriptions` names each member's topics, eldest member first; `partitions` says how many each existing topic has;
    `owned` is what members had so far.
    """
    readers = _readers(subscriptions, partitions)
    shares = {member: Share() for member in subscriptions}
    _keep(shares, readers, partitions, owned)
    _give_out(shares, readers, partitions)
    while _even_out(shares, readers):
        pass
    return {member: share.ats() for member, share in shares.items()}


class Share:
    """What one member has so far, by topic."""

    __slots__ = ("by_topic", "load")

    def __init__(self) -> None:
        self.by_topic: dict[str, list[int]] = {}
        self.load = 0

    def add(self, topic: str, partition: int) -> None:
        self.by_topic.setdefault(topic, []).append(partition)
        self.load += 1

    def count(self, topic: str) -> int:
        return len(self.by_topic.get(topic, ()))

    def take(self, topic: str) -> int:
        """What came last goes first."""
        partition = self.by_topic[topic].pop()
        if not self.by_topic[topic]:
            del self.by_topic[topic]
        self.load -= 1
        return partition

    def ats(self) -> frozenset[At]:
        return frozenset(At(topic, partition) for topic, held in self.by_topic.items() for partition in held)


def _readers(subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, int]) -> Readers:
    readers: dict[str, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            if topic in partitions:
                readers.setdefault(topic, []).append(member)
    return readers


def _keep(
    shares: Mapping[str, Share], readers: Readers, partitions: Mapping[str, int], owned: Mapping[str, Iterable[At]]
) -> None:
    """Leave everybody what they had and may still have."""
    for member, share in shares.items():
        for topic, partition in sorted(owned.get(member, ())):
            if member in readers.get(topic, ()) and partition < partitions[topic]:
                share.add(topic, partition)


def _give_out(shares: Mapping[str, Share], readers: Readers, partitions: Mapping[str, int]) -> None:
    """Give what nobody has to the least loaded; where several are, to the eldest."""
    # Topics with few readers first: the others then even out what those leave uneven.
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):
        loads = [(shares[member].load, age, member) for age, member in enumerate(readers[topic])]
        heapq.heapify(loads)
        taken = {partition for member in readers[topic] for partition in shares[member].by_topic.get(topic, ())}
        for partition in range(partitions[topic]):
            if partition not in taken:
                load, age, member = loads[0]
                shares[member].add(topic, partition)
                heapq.heapreplace(loads, (load + 1, age, member))


def _even_out(shares: Mapping[str, Share], readers: Readers) -> bool:
    """Move one partition's worth of load from a member to one with at least two less. False when no two are left.

    Where subscriptions differ the way may lead over others, each of whom hands on as much as it gets.
    """
    lowest = min((share.load for share in shares.values()), default=0)
    for giver in sorted(shares, key=lambda member: -shares[member].load):
        if shares[giver].load < lowest + 2:
            return False
        way = _way_down(giver, shares, readers)
        if way:
            for member, taker in pairwise(way):
                _hand_on(shares[member], shares[taker], taker, readers)
            return True
    return False


def _way_down(giver: str, shares: Mapping[str, Share], readers: Readers) -> list[str]:
    """The shortest way from a member to the least loaded of those with at least two less; empty when there is none."""
    enough = shares[giver].load - 2
    came_from: dict[str, str | None] = {giver: None}
    edge = [giver]
    while edge:
        found = [member for member in edge if shares[member].load <= enough]
        if found:
            return _way_to(min(found, key=lambda member: shares[member].load), came_from)
        edge = _step(edge, came_from, shares, readers)
    return []


def _step(
    edge: list[str], came_from: dict[str, str | None], shares: Mapping[str, Share], readers: Readers
) -> list[str]:
    """Whom these members could hand something to, and nobody reached yet."""
    reached = []
    for member in edge:
        for topic in sorted(shares[member].by_topic):
            for taker in readers[topic]:
                if taker not in came_from:
                    came_from[taker] = member
                    reached.append(taker)
    return reached


def _way_to(taker: str, came_from: Mapping[str, str | None]) -> list[str]:
    way = [taker]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    return way[::-1]


def _hand_on(share: Share, other: Share, taker: str, readers: Readers) -> None:
    """Of the topic that this member has most of compared to the other, so that busy topics are spread too."""
    topics = [topic for topic in share.by_topic if taker in readers[topic]]
    topic = max(topics, key=lambda topic: (share.count(topic) - other.count(topic), topic))
    other.add(topic, share.take(topic))
