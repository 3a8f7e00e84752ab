"""The compiled reader and builder in a process where many threads need them at once, and none did before."""

from __future__ import annotations

import subprocess
import sys

_MANY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor

from levada.records import build, pack, read

data = bytes.fromhex({data!r})


def first():
    assert [record.value for record in read.read_all(data)] == [b"v"]


def then(work):
    while "aiokafka.errors" not in sys.modules:
        pass  # until the first one is in the middle of importing
    work()


with ThreadPoolExecutor(4) as pool:
    others = [first, lambda: pack.pack([(1, None, b"v", [])]), lambda: build.build([(None, b"v")])]
    for done in [pool.submit(first), *(pool.submit(then, work) for work in others)]:
        done.result()
"""


def test_many_threads_may_need_them_first() -> None:
    from levada.records.build import build

    code = _MANY_THREADS.format(data=bytes(build([(None, b"v")])).hex())
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
