"""Writes `format-<n>`, a small data directory of the present format, for test_format.py to keep."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from levada.engine.embedded.meta import FORMAT_VERSION  # noqa: E402
from levada.engine.port import At, Committed, Write  # noqa: E402
from support.engines import make_topic, running  # noqa: E402
from support.reading import batch_of  # noqa: E402


async def main() -> None:
    target = HERE / f"format-{FORMAT_VERSION}"
    shutil.rmtree(target, ignore_errors=True)
    async with running(target) as engine:
        plain = await make_topic(engine, "plain", 2)
        for number in range(5):
            await engine.append(plain, batch_of(b"%d" % number))
        async with engine.own("shard") as owner:
            await engine.transact(owner, [Write(plain, bytes(batch_of(b"committed")))])
        for number in range(3):
            await engine.append(At("plain", 1), batch_of(b"%d" % number, producer=(9000, 0, number)))
        await engine.trim(At("plain", 1), 1)
        compacted = await make_topic(engine, "compacted", 1, cleanup_policy="compact", segment_bytes="500")
        for number in range(30):
            await engine.append(
                compacted, batch_of(b"%d" % number, key=b"%d" % (number % 3 if number < 28 else number - 28))
            )
        await make_topic(engine, "empty", 3, retention_ms="1000")
        await engine.commit_offsets("group", {plain: Committed(3, metadata="kept")})
    (target / ".lock").unlink()
    meta = target / "meta.properties"
    meta.write_text(re.sub("boot.id=.*", "boot.id=another-machine", meta.read_text()))


if __name__ == "__main__":
    asyncio.run(main())
