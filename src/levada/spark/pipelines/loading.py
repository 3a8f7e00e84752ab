"""The pipelines of a file.

The file is run, as Python runs any file, with the modules beside it importable. None of them stays in `sys.modules`: a changed
file is read anew, two directories may both have a `helpers.py`, and what Spark sends to executors goes there by value, since a
function whose module cannot be imported is pickled whole. So executors need nothing of the operator's directory.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import TracebackType
from typing import Final

from levada.spark.pipelines.declaration import Pipeline, collecting
from levada.spark.pipelines.errors import NeedsSession, NoPipelines, PipelineError, WrongFile

#: Reading these anew would make two of each class.
_OURS: Final = ("levada", "pyspark_levada")
#: What the file's own module is called: nothing that an import can say.
_OWN_NAME: Final = "pipelines of "
#: What pyspark says of a column that is made while no session runs.
_NO_SESSION: Final = "SESSION_OR_CONTEXT_NOT_EXISTS"


def declared(path: Path) -> list[Pipeline]:
    """The pipelines that this file declares, in its order. WrongFile, naming the line; NeedsSession: try again with one."""
    path = path.absolute()
    if not path.is_file():
        raise WrongFile(path, None, "there is no such file" if not path.exists() else "is not a file")
    with collecting() as found, _alone(path.parent):
        _run(path)
    own = [one for one in found if Path(one.file) == path]
    if not own:
        raise NoPipelines(path, None, "declares no pipeline: a function with @pipeline(source=…, sink=…) above it")
    check_names(own)
    return own


def check_names(pipelines: Iterable[Pipeline]) -> None:
    """WrongFile if two have one name: they would share a checkpoint, a group and sinks."""
    seen: dict[str, Pipeline] = {}
    for one in pipelines:
        if first := seen.get(one.name):
            where = f"line {first.line}" if first.file == one.file else f"{first.file}, line {first.line}"
            raise WrongFile(Path(one.file), one.line, f"there is a pipeline {one.name!r} already: {where}")
        seen[one.name] = one


def _run(path: Path) -> None:
    loader = SourceFileLoader(f"{_OWN_NAME}{path.name}", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise _wrong(path, error, error.lineno if error.filename == str(path) else None) from error
    except Exception as error:
        raise _wrong(path, error, _line(path, error.__traceback__)) from error


def _wrong(path: Path, error: Exception, line: int | None) -> WrongFile:
    text = str(error)
    if _needs_session(error):
        return NeedsSession(path, line, "Spark must run before columns are made outside of functions")
    if not isinstance(error, PipelineError):
        text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return WrongFile(path, line, text)


def _needs_session(error: Exception) -> bool:
    """Of pyspark, without a session: some of it says so, and some of it has an assertion."""
    if getattr(error, "getCondition", str)() == _NO_SESSION:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, AssertionError) or not frames or "pyspark" not in Path(frames[-1].filename).parts:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is None


def _line(path: Path, trace: TracebackType | None) -> int | None:
    """Where in this file it was: the innermost place of it."""
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == str(path)]
    return lines[-1] if lines else None


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Modules of this directory can be imported, are read anew, and are nobody's afterwards."""
    hidden = {name: sys.modules.pop(name) for name in _modules_of(directory)}
    before = dict(sys.modules)
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(directory))
        for name in (*_modules_of(directory), *(name for name in sys.modules if name.startswith(_OWN_NAME))):
            del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if name not in sys.modules})
        sys.modules.update(hidden)


def _modules_of(directory: Path) -> list[str]:
    """Names of loaded modules that an import finds in this directory, but for our own."""
    found = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if file and top not in _OURS and _lies_in(directory, top, Path(file)):
            found.append(name)
    return found


def _lies_in(directory: Path, top: str, file: Path) -> bool:
    return file == directory / f"{top}.py" or file.is_relative_to(directory / top)
