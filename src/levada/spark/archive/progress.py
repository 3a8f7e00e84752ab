"""How an archiver does."""

from __future__ import annotations

from dataclasses import dataclass, field

from levada.spark.fetch import Range


@dataclass
class Progress:
    """What an archiver has done since it started, and what is left."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    commits: int = 0
    #: Offsets that are not archived yet.
    lag: int = 0
    last_rows: int = 0
    last_s: float = 0.0
    lost: list[Range] = field(default_factory=list)

    @property
    def rows_s(self) -> float:
        """Of the last commit."""
        return self.last_rows / self.last_s if self.last_s else 0.0
