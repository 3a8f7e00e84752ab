"""One client doing one thing, in a process of its own:

    python -m harness.native.worker '{"kind": "redis", "address": "127.0.0.1:6379", "task": "batched", "stream": "s", …}'

Says what it measured as one line of JSON. A task that others wait for says `ready` first.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import uvloop

from harness.native import work
from harness.native.work import Work


async def connect(kind: str, address: str) -> Work:
    if kind == "redis":
        from harness.native.redis_work import RedisWork

        return RedisWork(address)
    if kind == "nats":
        from harness.native.nats_work import NatsWork

        return await NatsWork.connect(address)
    from harness.native.levada_work import LevadaWork

    return LevadaWork(address)


async def run(kind: str, address: str, task: str, stream: str, **amounts: Any) -> dict[str, float]:
    client = await connect(kind, address)
    try:
        if task == "create":
            await client.create(stream)
            return {}
        if task in ("receive", "drain"):
            amounts["ready"] = lambda: print("ready", flush=True)
        found: dict[str, float] = await getattr(work, task)(client, stream, **amounts)
        return found
    finally:
        await client.close()


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(**json.loads(sys.argv[1])))), flush=True)
