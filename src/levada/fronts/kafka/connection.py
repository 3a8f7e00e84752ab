"""One client's connection: frames in, answers out, in the order they were asked for.

- All frames that a read brought are begun, and what can be answered at once leaves in one write.
- Many requests may be in flight: each is begun when it arrives, so appends happen in arrival order. A handler that has
  to wait in the middle (`exclusive`) is finished before the next request is begun, as Kafka does for every request.
- The connection is bounded: no request is begun while the client does not read its answers, while too many are in flight,
  or while the broker holds too many bytes; then the socket is not read either.
- Bytes that are no request close the connection, with one line in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from levada.config import MiB
from levada.errors import MalformedFrame
from levada.fronts.kafka import loopback, notice
from levada.fronts.kafka.inbox import Inbox
from levada.fronts.kafka.line import Line
from levada.fronts.kafka.outbox import Outbox
from levada.fronts.kafka.reply import HangUp, Later

if TYPE_CHECKING:
    from levada.fronts.kafka.call import Node
    from levada.fronts.kafka.fetch_session import Session
    from levada.fronts.kafka.listener import Listener

#: Requests of one connection that are begun and not answered.
IN_FLIGHT_MAX: Final = 1000
#: Memory of finished answers that wait for earlier ones.
UNSENT_BYTES_MAX: Final = MiB
#: How often a frame may be found unfinished while memory is scarce.
_PRESS_ROUNDS: Final = 12


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    __slots__ = (
        "_charged_bytes",
        "_finishing",
        "_host",
        "_inbox",
        "_line",
        "_listener",
        "_node",
        "_outbox",
        "_pace",
        "_reported_bytes",
        "_scheduled",
        "_serve",
        "_transport",
        "_waits_for_memory",
        "_wanted_bytes",
        "client",
        "idle_rounds",
        "session",
    )

    _transport: asyncio.Transport
    _outbox: Outbox
    _line: Line
    _node: Node

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._serve = listener.dispatcher.serve
        self._inbox = Inbox(listener.scratch, listener.buffers, listener.frame_bytes_max)
        #: What the budget has granted for frames that are being received, is asked for, and knows of unsent answers.
        self._charged_bytes = 0
        self._wanted_bytes = 0
        self._reported_bytes = 0
        self._waits_for_memory = False
        #: The frame that was under way when memory was last scarce, and how much of it had come.
        self._pace = (0, 0)
        self._finishing = False
        self._scheduled = False
        self._host = self.client = ""
        #: How often the sweep came by since the last bytes did.
        self.idle_rounds = 0
        #: The fetch session it last used.
        self.session: Session | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(transport, self._listener.loop, self._schedule)
        self._line = Line(self._outbox, self._ready)
        peer = transport.get_extra_info("peername") or ("?", 0)
        if loopback.is_loopback(peer[0]):
            loopback.tune(transport.get_extra_info("socket"))
        self._host = peer[0]
        self.client = f"{peer[0]}:{peer[1]}"
        self._node = self._listener.node_at(transport.get_extra_info("sockname"))
        reason = self._listener.admit(self)
        if reason is not None:
            self._hang_up(reason)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.idle_rounds = 0
        self._inbox.received(nbytes)
        self._work()

    def pause_writing(self) -> None:
        self._outbox.choke()

    def resume_writing(self) -> None:
        self._outbox.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.forget(self)
        self._line.drop()
        if self.session is not None:
            self.session.leave(self)
        self._inbox.close()
        self._outbox.close()
        budget = self._listener.budget
        budget.unsent_bytes -= self._reported_bytes
        budget.forget(self._granted)
        budget.give(self._charged_bytes, self._granted)

    # What the listener calls.

    def take_frames_of(self, bytes_max: int) -> None:
        """Another socket.request.max.bytes."""
        self._inbox.frame_bytes_max = bytes_max

    def sweep(self, idle_rounds_max: int) -> None:
        """Close the connection if nothing has come for so many rounds."""
        self.idle_rounds += 1
        if self.idle_rounds <= idle_rounds_max:
            return
        if self._transport.is_closing():
            self._transport.abort()
        elif self._outbox.busy:
            notice.closed(self.client, "it has not read its answers for connections.max.idle.ms")
            self._transport.abort()
        elif not self._line:
            self._transport.close()

    def press(self, bytes_min: int) -> None:
        """Memory is scarce: close the connection if too little of a frame came since the last time, less than `bytes_min` and
        less than brings it here in a dozen rounds. What little waits behind its own requests may stay.
        """
        inbox = self._inbox
        frame, kept = self._pace
        self._pace = (inbox.frames_begun, inbox.kept_bytes)
        if self._waits_for_memory or not self._charged_bytes or frame != inbox.frames_begun:
            return
        if self._charged_bytes < bytes_min and self._blocked():
            return
        if inbox.kept_bytes - kept < max(bytes_min, inbox.frame_bytes // _PRESS_ROUNDS):
            notice.closed(self.client, "its request comes too slowly while others wait for memory")
            self._transport.abort()

    def finish(self) -> None:
        """Begin no more requests; close when those in flight are answered."""
        self._finishing = True
        self._line.hurry()
        self._schedule()

    def abort(self) -> None:
        self._transport.abort()

    # Requests.

    def _work(self) -> None:
        """Begin the requests that are here, as far as we may, and answer with one write."""
        take, serve, line = self._inbox.take, self._serve, self._line
        try:
            while not self._blocked():
                frame = take()
                if frame is None:
                    break
                answer = serve(frame, self._node, self._host, self)
                if answer is None:
                    continue
                line.add(answer)
                if type(answer) is list:
                    # At once: what the client does not read must be known before the next request is begun.
                    line.flush()
        except (MalformedFrame, HangUp) as cause:
            self._hang_up(cause)
            return
        line.flush()
        self._inbox.settle()
        self._regulate()

    def _blocked(self) -> bool:
        """May no request be begun now?"""
        line = self._line
        return (
            line.held_by is not None
            or self._outbox.busy
            or self._finishing
            or line.unsent_bytes > UNSENT_BYTES_MAX
            or len(line) >= IN_FLIGHT_MAX
        )

    def _ready(self, later: Later) -> None:
        """An answer came. It leaves with all others that come in this turn of the loop."""
        if later.reason is None:
            self._schedule()
        else:
            self._hang_up(later.reason)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Send what has become ready, then begin what had to wait."""
        self._scheduled = False
        if self._transport.is_closing():
            return
        self._line.flush()
        if self._inbox.unread and not self._blocked():
            self._work()
        else:
            self._regulate()
        if self._finishing and not self._line and not self._outbox.busy:
            self._transport.close()

    def _hang_up(self, cause: Exception) -> None:
        """Close the connection, because of what it sent. Answers that are finished still leave."""
        notice.closed(self.client, cause)
        if not self._transport.is_closing():
            self._line.flush()
            self._transport.close()

    # Bounds.

    def _regulate(self) -> None:
        """Read the socket only while what it brings can be used."""
        self._charge()
        self._report()
        if self._outbox.busy or self._waits_for_memory or (self._inbox.unread and self._blocked()):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _charge(self) -> None:
        """Have the frame that is being received counted; where the broker holds too much, wait."""
        held = self._inbox.held_bytes
        if held == self._charged_bytes or self._waits_for_memory:
            return
        budget, more = self._listener.budget, held - self._charged_bytes
        if more < 0:
            self._charged_bytes = held
            budget.give(-more, self._granted)
        elif (budget.grow if self._charged_bytes else budget.take)(more, self._granted):
            self._charged_bytes = held
        else:
            self._waits_for_memory = True
            self._wanted_bytes = held
            self._listener.press_soon()

    def _granted(self) -> None:
        self._charged_bytes = self._wanted_bytes
        self._waits_for_memory = False
        self._schedule()

    def _report(self) -> None:
        """Have answers counted that could not be sent yet."""
        unsent = self._line.unsent_bytes + (self._outbox.held_bytes if self._outbox.busy else 0)
        self._listener.budget.unsent_bytes += unsent - self._reported_bytes
        self._reported_bytes = unsent
