from __future__ import annotations

import asyncio
import time

from levada.fronts.http.loop_delay import INTERVAL_S, LoopDelay


async def until_counted(delay: LoopDelay, count: int) -> None:
    async with asyncio.timeout(30):
        while delay.histogram.count < count:  # noqa: ASYNC110  # nobody is told of what is only counted
            await asyncio.sleep(0.01)


async def test_nothing_is_measured_before_somebody_watches() -> None:
    delay = LoopDelay()
    await asyncio.sleep(INTERVAL_S * 1.5)
    assert delay.histogram.count == 0
    delay.watch()
    delay.watch()
    await until_counted(delay, 1)
    delay.stop()


async def test_a_turn_that_takes_long_is_seen_though_it_began_before_the_alarm() -> None:
    delay = LoopDelay()
    delay.watch()
    time.sleep(INTERVAL_S + 0.2)  # noqa: ASYNC251  # this is what is measured
    await until_counted(delay, 1)
    assert delay.histogram.total_ns >= 190_000_000
    delay.stop()


async def test_after_the_stop_no_alarm_rings() -> None:
    delay = LoopDelay()
    delay.watch()
    await until_counted(delay, 1)
    delay.stop()
    count = delay.histogram.count
    await asyncio.sleep(INTERVAL_S * 1.5)
    assert delay.histogram.count <= count + 1
