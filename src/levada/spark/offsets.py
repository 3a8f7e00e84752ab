"""From where a read begins and ends, as it was said, to an offset for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from levada.spark.history import History
from levada.spark.options.positions import At, Offsets, Position, Times, Word
from levada.spark.options.reading import WrongOption
from levada.wire.answers import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient


class Bounds(NamedTuple):
    """A partition's log begins at `start`, and can be read up to, not including, `end`."""

    start: int
    end: int


class Logs:
    """The partitions of a read, and what can be asked about their offsets."""

    def __init__(
        self, client: BlockingClient, partitions: Iterable[TopicPartition], history: History, *, read_committed: bool
    ) -> None:
        self._client = client
        self._isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._history = history
        ats = tuple(partitions)
        starts = client.list_offsets(dict.fromkeys(ats, EARLIEST))
        ends = client.list_offsets(dict.fromkeys(ats, LATEST), isolation=self._isolation)
        self.bounds: Mapping[TopicPartition, Bounds] = {at: Bounds(starts[at].offset, ends[at].offset) for at in ats}

    def earliest(self, at: TopicPartition) -> int:
        """The first offset that can be had of this partition, be it from its log or from its history."""
        start = self.bounds[at].start
        held = self._history.held(at) if start > 0 else None
        return min(start, held.start) if held is not None and held.end > held.start else start

    def resolve(self, position: Position, group: str | None) -> dict[TopicPartition, int]:
        """The offset of each partition. WrongOption for one that cannot be."""
        match position:
            case At(option, word):
                return self._at_word(option, word, group)
            case Offsets(option, offsets):
                self._check_whole(option, offsets)
                return {at: self._named(option, at, offsets[at]) for at in self.bounds}
            case Times(option, times, _):
                if not isinstance(times, int):
                    self._check_whole(option, times)
                return self._at_times(position)

    def _at_word(self, option: str, word: Word, group: str | None) -> dict[TopicPartition, int]:
        if word == "group":
            return self._of_group(option, group or "")
        if word == "earliest":
            return {at: self.earliest(at) for at in self.bounds}
        return {at: bounds.end for at, bounds in self.bounds.items()}

    def _of_group(self, option: str, group: str) -> dict[TopicPartition, int]:
        """Where the group goes on; the beginning of a partition that it has never committed. WrongOption where it is past the end."""
        committed = self._client.offset_fetch(group, self.bounds)
        return {
            at: self._there(option, at, committed[at].offset, f"group {group} at ")
            if at in committed
            else self.earliest(at)
            for at in self.bounds
        }

    def _named(self, option: str, at: TopicPartition, offset: int) -> int:
        if offset == EARLIEST:
            return self.earliest(at)
        if offset == LATEST:
            return self.bounds[at].end
        return self._there(option, at, offset)

    def _there(self, option: str, at: TopicPartition, offset: int, whose: str = "") -> int:
        start, end = self.bounds[at]
        if offset > end:
            allowed = f"{self.earliest(at) if start else 0} to {end} are there"
            raise WrongOption(option, f"{whose}{at}: {offset}", allowed)
        return offset

    def _check_whole(self, option: str, said: Mapping[TopicPartition, int]) -> None:
        """As in Spark, whoever says it for one partition says it for all."""
        missing = [str(at) for at in self.bounds if at not in said]
        if missing:
            raise WrongOption(
                option, f"nothing for {', '.join(missing)}", "every partition that is read has to be named"
            )
        for at in said:
            if at not in self.bounds:
                raise WrongOption(option, str(at), f"{', '.join(map(str, self.bounds))} are read")

    def _at_times(self, position: Times) -> dict[TopicPartition, int]:
        times = position.times
        wanted = dict.fromkeys(self.bounds, times) if isinstance(times, int) else {at: times[at] for at in self.bounds}
        answers = self._client.list_offsets(wanted, isolation=self._isolation)
        offsets = {}
        for at, bounds in self.bounds.items():
            older = self._history.at_time(at, wanted[at]) if bounds.start > 0 else None
            # What the history holds of the log's own offsets, the log says better.
            offset = answers[at].offset if older is None or older >= bounds.start else older
            if offset < 0 and not position.or_latest:
                allowed = "it has no record so late; with startingOffsetsByTimestampStrategy=latest its end is taken"
                raise WrongOption(position.option, f"{at}: {wanted[at]}", allowed)
            offsets[at] = min(offset, bounds.end) if offset >= 0 else bounds.end
        return offsets
