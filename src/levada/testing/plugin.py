"""The pytest fixture. pytest finds it by itself once levada is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from levada.testing import Broker, broker


@pytest.fixture
def levada_broker(tmp_path: Path) -> Iterator[Broker]:
    """An empty broker of this test's own; `levada_broker.bootstrap` is its address."""
    with broker(data=tmp_path / "levada") as running:
        yield running
