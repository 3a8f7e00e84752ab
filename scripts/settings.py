#!/usr/bin/env python3
"""Write the tables of docs/settings.md from config.py, which is the one list of what can be set.

    .venv/bin/python scripts/settings.py            write them
    .venv/bin/python scripts/settings.py --check    exit 1 where the page says something else

What stands outside of the markers is written by hand and stays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from levada.config import BROKER_SETTINGS, INT32_MAX, INT64_MAX, TOPIC_SETTINGS, Setting
from levada.errors import InvalidConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
_TIMES = [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)]
_SIZES = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is out of date")
    options = parser.parse_args()
    before = PAGE.read_text()
    after = page(before)
    if not options.check:
        PAGE.write_text(after)
    elif before != after:
        print(f"{PAGE} is out of date: run scripts/settings.py", file=sys.stderr)
        return 1
    return 0


def page(text: str) -> str:
    """The page with both tables as they should be."""
    text = between(text, "topic settings", topic_table(TOPIC_SETTINGS.values()))
    return between(text, "broker settings", broker_table(BROKER_SETTINGS.values()))


def between(text: str, marker: str, body: str) -> str:
    start, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
    head, found, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PAGE} has no {start} … {end}")
    return f"{head}{start}\n\n{body}\n\n{end}{tail}"


def topic_table(settings: Iterable[Setting]) -> str:
    rows = ["| setting | default | values | what it is | broker-wide name |", "|---|---|---|---|---|"]
    for one in settings:
        synonym = f"`{one.synonym}`" if one.synonym else "–"
        rows.append(f"| `{one.name}` | {default(one)} | {values(one)} | {escaped(one.doc)} | {synonym} |")
    return "\n".join(rows)


def broker_table(settings: Iterable[Setting]) -> str:
    rows = ["| setting | default | values | what it is |", "|---|---|---|---|"]
    for one in settings:
        allowed = "shown, not set" if one.read_only else values(one)
        rows.append(f"| `{one.name}` | {default(one)} | {allowed} | {escaped(one.doc)} |")
    return "\n".join(rows)


def default(setting: Setting) -> str:
    if not setting.default:
        return "–"
    meaning = in_words(setting)
    return f"`{setting.default}`" + (f" ({meaning})" if meaning else "")


def in_words(setting: Setting) -> str:
    """A number of milliseconds or bytes as a person would say it."""
    if setting.kind not in ("int", "long"):
        return ""
    value = int(setting.default)
    if value == INT64_MAX:
        return "no limit"
    if setting.name.endswith(".ms"):
        return unit(value, _TIMES)
    return unit(value, _SIZES) if setting.name.endswith(".bytes") else ""


def unit(value: int, units: list[tuple[str, int]]) -> str:
    for name, size in units:
        if value >= size and value % size == 0:
            count = value // size
            return f"{count} {name}" + ("s" if count > 1 and not name.endswith("B") else "")
    return ""


def values(setting: Setting) -> str:
    """What the setting's own check says of something it cannot take."""
    try:
        setting.validate("\0")
    except InvalidConfig as refused:
        said = str(refused).partition(": ")[2]
    else:
        return "any text"
    for words in ("must be one of ", "must be a whole number ", "must be a number ", "must be "):
        said = said.removeprefix(words)
    return escaped(said.replace(str(INT64_MAX), "2⁶³−1").replace(str(INT32_MAX), "2³¹−1"))


def escaped(text: str) -> str:
    """So that Markdown takes it for text."""
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
