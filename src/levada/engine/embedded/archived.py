"""Retention waits for the archive: what a topic with `levada.archive` has not archived yet is not deleted, however old it is.

How far the archive has come is the committed offset of group `__levada.archive`. Its metadata names the place it was archived
to: an offset of another place than the topic's says nothing about this one. One without metadata was set by hand, and counts.
Until there is an offset nothing is deleted. Who asks for records to be deleted (DeleteRecords) gets that all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from levada.config import TopicConfig
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.names import ARCHIVE_GROUP
from levada.engine.port import At
from levada.errors import UnknownTopic


class ArchiveFloor:
    """Up to where a partition is archived; None where nothing is to be."""

    def __init__(self, config_of: Callable[[str], TopicConfig], offsets: OffsetStore) -> None:
        self._config_of = config_of
        self._offsets = offsets

    def __call__(self, at: At) -> int | None:
        try:
            archive = self._config_of(at.topic).archive
        except UnknownTopic:
            return None  # deleted a moment ago
        if not archive:
            return None
        committed = self._offsets.committed(ARCHIVE_GROUP, at)
        if committed is None or committed.metadata not in ("", archive):
            return 0
        return committed.offset
