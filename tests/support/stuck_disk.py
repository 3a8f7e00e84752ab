"""Runs the command behind it with a disk that does not get done while a file exists.

python stuck_disk.py <file> <topic> levada up …: syncs of that topic's segments wait while the file is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from levada.cli import main
from levada.log.disk import File

stuck, topic = Path(sys.argv[1]), sys.argv[2]
sync = File.sync


def waits(self: File) -> None:
    while f"/topics/{topic}-" in self.path and stuck.exists():
        time.sleep(0.01)
    sync(self)


if __name__ == "__main__":
    File.sync = waits  # type: ignore[method-assign]
    sys.argv = sys.argv[3:]
    main()
