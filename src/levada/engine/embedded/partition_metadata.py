"""partition.metadata: whose directory this is, in Kafka's form.

    version: 0
    topic_id: <22 characters of URL-safe base64>

A topic that is deleted and made again has the same directories under another id: the file tells the old from the new.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final
from uuid import UUID

from levada.log.disk import Disk

FILE: Final = "partition.metadata"


def encode(topic_id: UUID) -> bytes:
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}\n".encode()


def decode(data: bytes) -> UUID | None:
    """The topic's id; None where the file does not say it, as after a power failure that lost its bytes."""
    fields = dict(line.split(": ", 1) for line in data.decode("ascii", errors="replace").splitlines() if ": " in line)
    try:
        return UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (KeyError, ValueError, binascii.Error):
        return None


def read(disk: Disk, directory: Path) -> UUID | None:
    try:
        return decode(disk.read(str(directory / FILE)))
    except FileNotFoundError:
        return None


def write(disk: Disk, directory: Path, topic_id: UUID) -> None:
    """Written before any record is, and durable with the first of them: see `settle`."""
    path = str(directory / FILE)
    disk.unlink(path)
    file = disk.create(path)
    file.append(encode(topic_id))
    file.close()


def settle(disk: Disk, directory: Path) -> None:
    """Make the file and the directory's own name durable. In a worker thread."""
    file = disk.open(str(directory / FILE))
    file.sync()
    file.close()
    disk.fsync_dir(str(directory))
    disk.fsync_dir(str(directory.parent))
