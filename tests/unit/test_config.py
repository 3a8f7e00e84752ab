"""Settings that are more than a number from a range."""

from __future__ import annotations

from pathlib import Path

import pytest

from levada.config import BrokerConfig, check_topic_settings, topic_config
from levada.errors import InvalidConfig


@pytest.mark.parametrize("place", ["", "/lake/orders", "s3://bucket/orders", "file:///lake/orders", "/with space/x"])
def test_an_archive_is_an_absolute_path_or_a_uri(place: str) -> None:
    assert topic_config({"levada.archive": place}).archive == place


@pytest.mark.parametrize(
    "place", ["orders", "./orders", "~/orders", "s3:bucket", "://x", " /lake", "/lake ", "s3://a b"]
)
def test_an_archive_that_depends_on_where_one_stands_is_refused(place: str) -> None:
    with pytest.raises(InvalidConfig, match=r"levada\.archive=.*: must be an absolute path or a URI"):
        check_topic_settings({"levada.archive": place})


def test_an_archive_has_no_default_for_all_topics(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="each has a table of its own"):
        BrokerConfig(data=tmp_path, topic={"levada.archive": "/lake"})


def test_a_format_needs_its_schema() -> None:
    with pytest.raises(InvalidConfig, match=r"levada\.archive\.schema must say"):
        topic_config({"levada.archive": "/lake", "levada.archive.format": "json"})
    topic_config({"levada.archive.format": "json", "levada.archive.schema": "id BIGINT"})
    check_topic_settings({"levada.archive.format": "json"})  # the schema may have been set before
