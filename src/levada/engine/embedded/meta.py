"""meta.properties: what a data directory says about itself.

format.version      the layout; a newer one than ours is refused, an older one is upgraded
cluster.id          made with the directory
node.id             this broker's Kafka id
broker.epoch        grows on every start after a crash; it is every partition's leader epoch
boot.id             the machine's boot during which the directory was last open
clean               true from a clean stop until the next start
producer.id.next    the first producer id that was never reserved
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Final

from levada.errors import StorageFailed

FILE: Final = "meta.properties"
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    format_version: int = FORMAT_VERSION
    cluster_id: str
    node_id: int
    broker_epoch: int = 0
    boot_id: str = ""
    clean: bool = True
    producer_id_next: int = 0

    def encode(self) -> bytes:
        lines = (
            f"format.version={self.format_version}",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"broker.epoch={self.broker_epoch}",
            f"boot.id={self.boot_id}",
            f"clean={'true' if self.clean else 'false'}",
            f"producer.id.next={self.producer_id_next}",
        )
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, file: str) -> Meta:
        """StorageFailed, naming the file and what is wrong with it."""
        fields = _properties(data)
        try:
            return cls(
                format_version=int(fields["format.version"]),
                cluster_id=fields["cluster.id"],
                node_id=int(fields["node.id"]),
                broker_epoch=int(fields["broker.epoch"]),
                boot_id=fields["boot.id"],
                clean=fields["clean"] == "true",
                producer_id_next=int(fields["producer.id.next"]),
            )
        except KeyError as missing:
            raise StorageFailed(f"{file} lacks {missing.args[0]}") from missing
        except ValueError as reason:
            raise StorageFailed(f"{file} cannot be read: {reason}") from reason


def format_version(data: bytes, file: str) -> int:
    """The version alone: of a newer format nothing else may be assumed."""
    text = _properties(data).get("format.version", "")
    if not text.isdecimal():
        raise StorageFailed(f"{file} has format.version={text!r}; it should be a number")
    return int(text)


def new_cluster_id() -> str:
    """As Kafka makes them: a random UUID, 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _properties(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}
