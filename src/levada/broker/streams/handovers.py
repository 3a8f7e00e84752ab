"""From one owner to the next: what a running member loses is withheld until it has committed how far it came, or time is up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from levada.broker.groups.timers import Timer, Timers
from levada.broker.streams.group import Group
from levada.broker.streams.member import Member
from levada.engine.port import At


class Handovers:
    """Of members that asked for it, by a `hand_over_ms`. `keep` writes down who has what."""

    def __init__(self, timers: Timers, keep: Callable[[Group], None]) -> None:
        self._timers = timers
        self._keep = keep

    def begin(self, group: Group, before: Mapping[str, Collection[At]], moved: Collection[At], now_ms: int) -> None:
        """A generation has begun, and everybody has a new share: withhold what others still have.

        What was moved is not: how far anybody came in it is of no account any more.
        """
        given = {at for member in group.members.values() for at in member.share}
        for member in group.members.values():
            lost = before.get(member.id, ()) if member.hand_over_ms else ()
            for at in lost:
                if at not in member.share:
                    member.leaving.setdefault(at, (member.since.get(at, 0), group.generation - 1))
            for at in [at for at in member.leaving if at not in given or at in moved]:
                del member.leaving[at]
            if member.leaving and (member.hand_over is None or member.hand_over.deadline_ms is None):
                member.hand_over = member.hand_over or Timer(partial(self._late, group, member))
                self._timers.at(member.hand_over, now_ms + member.hand_over_ms)
        self._give(group, moved)

    def end(self, group: Group, member: Member, ats: Iterable[At]) -> None:
        """The member is done with these: their new owners are told."""
        done = [at for at in ats if member.leaving.pop(at, None) is not None]
        if not done:
            return
        if not member.leaving:
            self.drop(member)
        before = {each.id: each.owned for each in group.members.values()}
        self._give(group, ())
        self._keep(group)
        for each in list(group.members.values()):
            if each.owned != before[each.id]:
                each.receipt = group.receipt
                each.tell()

    def drop(self, member: Member) -> None:
        """It has nothing more to hand over."""
        member.leaving.clear()
        if member.hand_over is not None:
            self._timers.cancel(member.hand_over)

    def _late(self, group: Group, member: Member, now_ms: int) -> None:
        self.end(group, member, list(member.leaving))

    @staticmethod
    def _give(group: Group, moved: Collection[At]) -> None:
        withheld = group.withheld()
        for member in group.members.values():
            member.owned = member.share - withheld
            since, now = member.since, group.generation
            member.since = {at: now if at in moved else since.get(at, now) for at in member.owned}
