"""How a group goes from one generation to the next: who has what is said anew, kept, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from levada.broker.groups.timers import Timer, Timers
from levada.broker.streams import notice
from levada.broker.streams.group import Group, Seen
from levada.broker.streams.handovers import Handovers
from levada.broker.streams.member import Member
from levada.broker.streams.snapshot import snapshot
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At, TopicInfo
from levada.errors import LevadaError, StorageError


class Topics(Protocol):
    """Which topics there are: a TopicView, or less."""

    def get(self, name: str) -> TopicInfo | None: ...


class Generations:
    """What every change of a group goes through. `expire(group, member, now_ms)` is called when a session ends."""

    def __init__(
        self,
        view: Topics,
        save: Callable[[GroupSnapshot], int],
        forget: Callable[[str], int],
        expire: Callable[[Group, Member, int], None],
    ) -> None:
        self.timers = Timers()
        self.handovers = Handovers(self.timers, self.keep)
        self.forget = forget
        self._view = view
        self._save = save
        self._expire = expire

    # Topics

    def look(self, topics: Iterable[str]) -> dict[str, Seen]:
        """Those of these topics that exist, as they are now."""
        found = {topic: self._view.get(topic) for topic in topics}
        return {topic: Seen(info.id, info.partitions) for topic, info in found.items() if info is not None}

    # Changes

    def begin(
        self,
        group: Group,
        reason: str,
        now_ms: int,
        *,
        moved: Mapping[At, int] | None = None,
        silent: Member | None = None,
    ) -> None:
        """A new generation of those who are in the group now, all of whom are told but the one who is silent."""
        seen = self.look(group.topics)
        replaced = group.replaced(seen)
        if replaced:
            # Let go of first, so that nobody reads on in the new topic where it was in the old.
            left = {topic: one for topic, one in seen.items() if topic not in replaced}
            self._begin(group, left, f"made again: {', '.join(sorted(replaced))}", now_ms, {}, silent)
        self._begin(group, seen, reason, now_ms, moved or {}, silent)

    def _begin(
        self,
        group: Group,
        seen: dict[str, Seen],
        reason: str,
        now_ms: int,
        moved: Mapping[At, int],
        silent: Member | None,
    ) -> None:
        before = {member.id: member.owned for member in group.members.values()}
        group.generation += 1
        group.seen = seen
        group.share()
        self.handovers.begin(group, before, moved, now_ms)
        self.keep(group)
        notice.generation(group, reason)
        for member in list(group.members.values()):
            member.receipt = group.receipt
            if member is not silent:
                member.tell({at: offset for at, offset in moved.items() if at in member.owned})

    def reshare(self, group: Group, *, silent: Member | None = None) -> None:
        """Within the generation, tell those of whom the topics' partitions are others now."""
        before = {member.id: member.owned for member in group.members.values()}
        group.seen = self.look(group.topics)
        group.share()
        for member in list(group.members.values()):
            if member is not silent and member.owned != before[member.id]:
                member.tell()

    def fence(self, group: Group, member: Member, reason: LevadaError, now_ms: int) -> None:
        """Take a member out and tell it why. What becomes of its partitions is the caller's."""
        self.remove(group, member, now_ms)
        member.fence(reason, group.generation)

    def remove(self, group: Group, member: Member, now_ms: int) -> None:
        if member.session is not None:
            self.timers.cancel(member.session)
        self.handovers.drop(member)
        group.remove(member, now_ms)

    # Keeping

    def save(self, group: Group) -> int:
        """StorageError when the group cannot be kept as it is."""
        group.receipt = self._save(snapshot(group))
        return group.receipt

    def keep(self, group: Group) -> None:
        """A generation goes on even when it cannot be saved: at worst a crash gives its number out again."""
        try:
            self.save(group)
        except StorageError as reason:
            notice.not_saved(group, reason)

    # Sessions

    def touch(self, group: Group, member: Member, now_ms: int) -> None:
        """The member gave a sign of life: its session begins anew."""
        if member.session is None:
            member.session = Timer(partial(self._expire, group, member))
        self.timers.at(member.session, now_ms + member.session_timeout_ms)
