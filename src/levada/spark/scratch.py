"""A directory for what a session needs on this machine while it lasts: `levada-spark-<pid>-…`, where temporary files are.

It is removed when the process ends. One that was killed cannot do that, so the next that makes a directory here removes those that
dead processes of the same user have left. A process is dead if nobody has its number and nobody holds the lock in its directory: in
another container, which may share the directory, numbers are others.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

_PREFIX: Final = "levada-spark-"
_LOCK: Final = "lock"
#: Between a directory and its lock there is no such time.
_MAKING_S: Final = 60.0
#: Of this process; a fork has one of its own.
_made: dict[int, Path] = {}


def scratch() -> Path:
    """This process's directory, made when it is first asked for."""
    pid = os.getpid()
    if pid not in _made:
        place = Path(tempfile.gettempdir())
        remove_stale(place)
        _made[pid] = make(place)
        atexit.register(_remove, pid)
    return _made[pid]


def make(place: Path) -> Path:
    """A directory there, whose lock is held until this process ends, however it does."""
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
    fcntl.flock(os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_EX)
    return directory


def remove_stale(place: Path) -> list[Path]:
    """Remove what processes that are dead now have left there; which directories that were."""
    stale = [one for one in place.glob(f"{_PREFIX}*") if _is_stale(one)]
    for one in stale:
        shutil.rmtree(one, ignore_errors=True)
    return stale


def _is_stale(directory: Path) -> bool:
    found = re.fullmatch(rf"{_PREFIX}(\d+)-\w+", directory.name)
    try:
        facts = directory.lstat()
        is_ours = found is not None and stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
        return is_ours and found is not None and not _is_alive(int(found[1])) and not _is_held(directory / _LOCK)
    except OSError:  # it is being removed by somebody else
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _is_held(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:  # it may be being made
        return time.time() - lock.parent.lstat().st_mtime < _MAKING_S
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _remove(pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(_made[pid], ignore_errors=True)
