from __future__ import annotations

from collections.abc import Iterator

import pytest

from levada.broker.streams import notice


@pytest.fixture(scope="module", autouse=True)
def no_log_lines() -> Iterator[None]:
    """A state machine makes ten thousand generations; a line for each would be all the test does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notice, "_log", lambda: _Silent)
        yield


class _Silent:
    @staticmethod
    def info(event: str, **fields: object) -> None: ...

    @staticmethod
    def warning(event: str, **fields: object) -> None: ...

    @staticmethod
    def error(event: str, **fields: object) -> None: ...
