"""What is said of a failure: its cause in a sentence or two, and not the hundred lines of Java around it."""

from __future__ import annotations

import re
import traceback
from typing import Final

from levada.errors import LevadaError
from levada.spark.pipelines.errors import PipelineFailed, TooBusy

#: The last line of a Python traceback: the class by its whole name, and what it says.
_RAISED: Final = re.compile(r"^\s*(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*)(?:: (.*))?$")
_JAVA_FRAME: Final = re.compile(r"^\s*(at |\.\.\. \d+ more|Caused by: )")
#: What Spark says when a Python process was not there in time.
_SLOW_WORKER: Final = "Python worker failed to connect back"
_TRACEBACK: Final = "Traceback (most recent call last):"
#: Spark's wrapping, which says only that something failed.
_WRAPPINGS: Final = (
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ",
    r"^Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: ",
    r"^Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(.*?\): ",
    r"^org\.apache\.spark\.[\w.$]+: ",
    r"^java\.[\w.$]+: ",
    r"\s*SQLSTATE: \w+;?",
)


def cause(error: BaseException) -> str:
    """What went wrong, as the one who can change it would say it."""
    if isinstance(error, LevadaError):
        return str(error)
    text = str(error)
    if found := python_cause(text):
        return found
    if type(error).__module__.startswith(("pyspark", "py4j")):
        return java_cause(text)
    return "".join(traceback.format_exception_only(error)).strip()


def failed(what: str, error: BaseException, file: str) -> PipelineFailed:
    """What failed, and why, with the line of this file if it was there."""
    said = cause(error)
    if _SLOW_WORKER in said:
        return TooBusy(f"{what}: {TooBusy.__doc__} Try again.")
    return PipelineFailed(f"{what}: {said}{'' if ', line ' in said else place(error, file)}")


def place(error: BaseException, file: str) -> str:
    """Where in this file it happened, for the end of a sentence; empty where it did not."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({file}, line {lines[-1]})" if lines else ""


def python_cause(text: str) -> str | None:
    """What was raised last in the innermost Python traceback of a text; None where there is none.

    A class of our own is left away: its message is a sentence. The line in the user's file is added to anybody else's.
    """
    if _TRACEBACK not in text:
        return None
    lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
    place = ""
    for number, line in enumerate(lines):
        if found := re.match(r'^\s*File "(.+?)", line (\d+), in (\S+)', line):
            place = f"{found[1]}, line {found[2]}, in {found[3]}"
            continue
        if (found := _RAISED.match(line)) and not line.startswith("    "):
            message = "\n".join([found[2] or "", *_more(lines[number + 1 :])]).strip()
            if message and re.match(r"^\s*levada\.", line):
                return message
            return (f"{found[1]}: {message}" if message else found[1]) + (f" ({place})" if place else "")
    return None


def _more(lines: list[str]) -> list[str]:
    """Further lines of a message, up to where Java goes on."""
    kept: list[str] = []
    for line in lines:
        if not line.strip() or _JAVA_FRAME.match(line) or _TRACEBACK in line:
            break
        kept.append(line.rstrip())
    return kept


def java_cause(text: str) -> str:
    """The first line that says something, without what Spark puts before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JAVA_FRAME.match(line)]
    if not lines:
        return "Spark does not say why"
    said = lines[0]
    before = None
    while said != before:
        before = said
        for wrapping in _WRAPPINGS:
            said = re.sub(wrapping, "", said)
    return said.strip() or lines[0]
