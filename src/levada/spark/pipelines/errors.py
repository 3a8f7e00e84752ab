"""What can be wrong with a pipeline.

PipelineError
├── WrongDeclaration   a pipeline cannot be what its file says it is
├── WrongFile          a file of pipelines cannot be loaded; NoPipelines: it declares none; NeedsSession: Spark must run first
├── WrongCheckpoint    the checkpoint is another declaration's, or is gone
├── UnknownPipeline    no runner has a pipeline of this name
├── WrongTable         a lake table cannot take the rows
└── PipelineFailed     a running pipeline ended with an error; TooBusy: it may do the next time
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from levada.errors import LevadaError


class PipelineError(LevadaError):
    """Something about a pipeline is wrong."""


class WrongDeclaration(PipelineError, ValueError):
    """The pipeline cannot be what it is declared to be."""


class WrongFile(PipelineError):
    """The file of pipelines cannot be loaded."""

    def __init__(self, path: Path, line: int | None, why: str) -> None:
        place = f"{path}, line {line}" if line else str(path)
        super().__init__(f"{place}: {why}")
        self.path, self.line, self.why = path, line, why

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.line, self.why)


class NoPipelines(WrongFile):
    """The file declares none: it may be there for others to import."""


class NeedsSession(WrongFile):
    """Loading the file uses Spark, which is not running: it has columns, or functions with types as text, outside of functions."""


class WrongCheckpoint(PipelineError):
    """The checkpoint does not belong to what is to run."""


class UnknownPipeline(PipelineError):
    """No runner has a pipeline of this name."""


class WrongTable(PipelineError):
    """The lake table cannot take these rows."""


class PipelineFailed(PipelineError):
    """The pipeline ended with an error."""


class TooBusy(PipelineFailed):
    """Spark gives a Python process of its own ten seconds to start, and the machine was too busy for that."""
