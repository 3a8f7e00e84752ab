"""A coordinator with partitions around it, all in memory, that can crash and start again."""

from __future__ import annotations

import asyncio
import itertools
import random

from levada.engine.embedded.markers import OFFSETS
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.embedded.transaction_limits import TransactionLimits
from levada.engine.embedded.transactions import Transactions
from levada.engine.names import TRANSACTION_STATE
from levada.engine.port import At
from levada.errors import UnknownTopic
from support.memory_log import MemoryJournal, MemoryLog, MemoryPartition

STATE = At(TRANSACTION_STATE, 0)
P0, P1, P2 = At("t", 0), At("t", 1), At("t", 2)


class World:
    """`eager`: everything is durable at once. Otherwise when `sync` is called."""

    def __init__(self, *, eager: bool = True, limits: TransactionLimits | None = None) -> None:
        self.eager = eager
        self.limits = limits or TransactionLimits()
        self.now_ms = 1000
        self.epoch = 0
        self.producer_ids = itertools.count(4000)
        self.partitions = {at: MemoryPartition(at, eager=eager) for at in (STATE, OFFSETS, P0, P1, P2)}
        self._start()

    def _start(self) -> None:
        self.offsets = OffsetStore(MemoryJournal(self.partitions[OFFSETS]), lambda: self.now_ms)
        self.transactions = Transactions(
            MemoryJournal(self.partitions[STATE]),
            self.partition_of,
            self.offsets,
            lambda: next(self.producer_ids),
            lambda: self.now_ms,
            self.limits,
            coordinator_epoch=self.epoch,
        )
        self.opened: set[At] = set()
        self.transactions.load()
        self.partition_of(OFFSETS)
        self.offsets.load()
        self.transactions.start()

    def partition_of(self, at: At) -> MemoryPartition:
        """Opened when it is first asked for, as the engine does it."""
        if at not in self.partitions:
            raise UnknownTopic(f"no {at}")
        if at not in self.opened:
            self.opened.add(at)
            self.transactions.opened(self.partitions[at])
        return self.partitions[at]

    def crash(self, rng: random.Random | None = None) -> None:
        """Lose any part of what was not synced, and start again. Call it where no task is left running."""
        keep = rng or random.Random(0)
        self.partitions = {
            at: MemoryPartition(at, partition.log.after_crash(keep), eager=self.eager)
            for at, partition in self.partitions.items()
        }
        self.epoch += 1
        self._start()

    def produce(
        self, at: At, value: bytes, producer_id: int, epoch: int, *, implicit: bool = True, sequence: int = -1
    ) -> int | None:
        """What a Produce does up to where it waits. Returns the coordinator's receipt."""
        partition = self.partition_of(at)
        receipt = self.transactions.on_transactional_append(producer_id, epoch, at, implicit=implicit)
        partition.append([(None, value)], producer=(producer_id, epoch), sequence=sequence)
        return receipt

    def committed(self, at: At) -> list[bytes]:
        return self.log(at).committed()

    def log(self, at: At) -> MemoryLog:
        return self.partitions[at].log

    def sync(self, *ats: At) -> None:
        for at in ats or tuple(self.partitions):
            self.partitions[at].sync()

    async def settle(self) -> None:
        """Sync and turn the loop until nothing happens any more."""
        before: list[int] = []
        while before != (ends := self._ends()):
            before = ends
            self.sync()
            await turn(8)

    def _ends(self) -> list[int]:
        return [partition.log_end for partition in self.partitions.values()]


async def turn(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)
