"""Records of one consumer on their way to the screen."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from levada.cli.session import count
from levada.cli.shapes import Shape
from levada.errors import ConnectionLost, ShuttingDown, TimedOut, Unreachable

if TYPE_CHECKING:
    from levada.client.faces import Consumer
    from levada.client.records import At, Record

#: How often a group's place is saved while records are printed.
SAVE_EVERY_S: Final = 1.0
_POLL: Final = 500
_POLL_MS: Final = 500
#: Polls without a record after which something may be wrong, and after which it is.
_QUIET_POLLS: Final = 6
_SILENT_POLLS: Final = 60
#: Polls without a record after which a follower looks whether the broker is there.
_LOOK_POLLS: Final = 2
#: What a follower waits for the end of.
_GONE: Final = (Unreachable, ConnectionLost, ShuttingDown, TimedOut)


class Reading:
    """Records of one consumer, printed one by one, up to the ends there were when it began or on and on."""

    def __init__(
        self,
        consumer: Consumer,
        ends: dict[int, int],
        group: str | None,
        *,
        follow: bool,
        committed: bool,
        still_there: Callable[[], object],
    ) -> None:
        self._consumer = consumer
        self._ends = ends
        self._group = group
        self._follow = follow
        self._committed = committed
        #: Raises when the topic is not there any more.
        self._still_there = still_there
        #: By partition, the next offset after what was printed.
        self._printed: dict[At, int] = {}
        #: What of it the group has.
        self._saved: dict[At, int] = {}
        self._saved_at = time.monotonic()
        #: Nobody answers; this was said.
        self._lost = False
        self.records = 0

    def run(self, show: Shape, limit: int | None) -> None:
        """Until the end, the limit, or Ctrl-C. What was printed is saved for the group, whatever ends it."""
        try:
            self._read(show, limit)
            sys.stdout.flush()
            self._save()
        except KeyboardInterrupt:
            sys.stdout.flush()
            if not self._lost:
                self._save()
            self._say_goodbye()
        except BrokenPipeError:
            # `| head` has seen enough. Nothing more may be written into the pipe, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._save()

    def _read(self, show: Shape, limit: int | None) -> None:
        quiet, most = 0, _POLL
        polled: list[Record] = []
        while limit is None or self.records < limit:
            if not self._follow and len(polled) < most and (self._at_the_end() or self._held_back(quiet)):
                return
            if self._follow and quiet and quiet % _LOOK_POLLS == 0:
                self._look()
            elif quiet and quiet % _QUIET_POLLS == 0 and not self._consumer.assignment():
                self._still_there()
            most = _POLL if limit is None else min(_POLL, limit - self.records)
            polled = self._consumer.poll(most, _POLL_MS)
            quiet = 0 if polled else quiet + 1
            for record in polled:
                if self._follow or record.offset < self._ends.get(record.partition, 0):
                    self._print(record, show)
            if polled:
                sys.stdout.flush()
            if polled and self._lost:
                self._found_again()
            if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
                self._save_meanwhile()

    def _look(self) -> None:
        """While nothing comes: is the broker there? The consumer looks for it again by itself, and says nothing."""
        try:
            self._still_there()
        except _GONE:
            self._say_lost()
            return
        if self._lost:
            self._found_again()

    def _save_meanwhile(self) -> None:
        """A follower outlives its broker: what cannot be saved now is saved when it is back."""
        if not self._follow:
            self._save()
        elif self._group is not None and self._printed != self._saved:
            # A commit waits for the broker; this does not.
            self._look()
            try:
                if not self._lost:
                    self._save()
            except _GONE:
                self._say_lost()

    def _say_lost(self) -> None:
        if not self._lost:
            self._lost = True
            print("levada: the connection is lost; waiting for the broker", file=sys.stderr)

    def _found_again(self) -> None:
        self._lost = False
        print("levada: the broker is back", file=sys.stderr)

    def _print(self, record: Record, show: Shape) -> None:
        show(record)
        self.records += 1
        self._printed[_at(record)] = record.offset + 1

    def _at_the_end(self) -> bool:
        """Of every partition that is ours. Those that came with an expansion meanwhile are for another time."""
        for at in self._consumer.assignment():
            end = self._ends.get(at.partition, 0)
            if self._consumer.position(*at) < end:
                return False
            if at in self._printed:
                # Past what is not a record too: the end of a transaction, what was aborted.
                self._printed[at] = max(self._printed[at], end)
        return True

    def _held_back(self, quiet: int) -> bool:
        """Short of the end, and nothing comes. An open transaction holds the rest back from who reads what is committed."""
        if quiet >= _SILENT_POLLS:
            raise TimedOut(f"nothing came for {quiet * _POLL_MS // 1000} s, short of the end; --from goes on elsewhere")
        return self._committed and quiet >= _QUIET_POLLS

    def _save(self) -> None:
        """Of the partitions that are still ours."""
        self._saved_at = time.monotonic()
        if self._group is None or self._printed == self._saved:
            return
        owned = set(self._consumer.assignment())
        news = {at: offset for at, offset in self._printed.items() if at in owned and self._saved.get(at) != offset}
        if news:
            self._consumer.commit({(at.topic, at.partition): offset for at, offset in news.items()})
        self._saved = {**self._saved, **news}

    def _say_goodbye(self) -> None:
        places = ", ".join(f"{at.partition}:{offset}" for at, offset in sorted(self._printed.items()))
        said = count(self.records, "record") + (f"; next offsets {places}" if places else "")
        kept = f"; saved for group {self._group}" if self._saved and self._saved == self._printed else ""
        print(f"\n{said}{kept}", file=sys.stderr)


def _at(record: Record) -> At:
    from levada.client.records import At

    return At(record.topic, record.partition)
