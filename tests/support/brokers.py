"""Which broker the acceptance tests talk to, and how one is made.

`LEVADA_TEST_BROKER=kafka` runs every test that is not Levada's own against a real Apache Kafka instead: so we know that
what is asked of Levada is what Kafka does. Default is `levada`, started as `levada up`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.kafka import KafkaBroker
from support.levada import LevadaBroker

Broker = LevadaBroker | KafkaBroker

KIND = os.environ.get("LEVADA_TEST_BROKER", "levada")
#: Short waits, in both brokers' words.
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
KAFKA_SETTINGS = {"log.segment.delete.delay.ms": "200", "log.initial.task.delay.ms": "500"}
LEVADA_SETTINGS = {"file.delete.delay.ms": "200"}

levada_only = pytest.mark.skipif(KIND != "levada", reason="a promise of Levada's, not of Kafka's")


def make_broker(home: Path, settings: Mapping[str, str] | None = None, *, advertised: str = "") -> Broker:
    """A broker of the kind under test, not started yet."""
    if KIND == "kafka":
        return KafkaBroker(home, {**SETTINGS, **KAFKA_SETTINGS, **(settings or {})}, advertised=advertised)
    return LevadaBroker(home, {**SETTINGS, **LEVADA_SETTINGS, **(settings or {})}, advertised=advertised)
