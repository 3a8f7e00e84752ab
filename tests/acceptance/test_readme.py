"""What README.md and the pages under docs/ tell a reader to type does what they say.

Every fenced block of a page is run in order, against one fresh broker, as a reader would who follows it from top to bottom:

- `console`: each line after `$ ` is run by a shell; the lines below it are what it must print, where there are any.
- `python`, `js`: run as a program; `# → text`, or `// → text`, at the end of a line is what that line must print. Python with a
  `def test_…` is run by pytest.

`…` stands for anything. Addresses are those of the broker that runs here, and a command it cannot run (`NOT_HERE`) is passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.brokers import levada_only
from support.jars import cache_dir, need
from support.levada import LevadaBroker

pytestmark = levada_only

ROOT = Path(__file__).resolve().parents[2]
#: These set up the machine, or run for ever.
NOT_HERE = ("make ", "levada up", "pip install", "npm ", "npx ", "go install", "grpcurl ")
#: Not one of ours to run: formats, other languages, drawings.
RUN = ("console", "python", "js")
#: Spark takes a while to start.
TIMEOUT_S = 240


class Block(NamedTuple):
    """A fenced block: where it begins, what it is in, and what it says."""

    line: int
    language: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    """Those of a page that can be run."""
    fence, language, held = 0, "", list[str]()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            if fence and language in RUN:
                yield Block(fence, language, "\n".join(held))
            fence, language, held = (0, "", []) if fence else (number, line.removeprefix("```").strip(), [])
        elif fence:
            held.append(line)


#: The pages with something to run.
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if any(blocks(page))]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker") as running:
        yield running


class Reader:
    """Does what it is told, in a directory of its own."""

    def __init__(self, home: Path, broker: LevadaBroker) -> None:
        self.home = home
        self.addresses = {
            f"{host}:{port}": str(broker.ready[front])
            for front, port in (("kafka", 9092), ("grpc", 9094), ("http", 9095))
            for host in ("127.0.0.1", "localhost")
        }
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LEVADA_")}
        at = {"LEVADA_BOOTSTRAP": str(broker.ready["kafka"]), "LEVADA_SERVER": str(broker.ready["grpc"])}
        self.environment = {**kept, **at, "PATH": programs, "NO_COLOR": "1", "COLUMNS": "150"}

    def here(self, text: str) -> str:
        """The same, for the broker that runs here."""
        for told, true in self.addresses.items():
            text = text.replace(told, true)
        return text

    def run(self, command: list[str] | str) -> str:
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            executable="/bin/bash" if isinstance(command, str) else None,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def console(self, block: Block) -> None:
        for command, told in commands(block.text):
            if command.startswith(NOT_HERE):
                continue
            if "kcat " in command:
                need("kcat", bool(shutil.which("kcat")))
            printed = self.run(self.here(command))
            if told:
                check(told, printed.splitlines(), command)

    def python(self, block: Block) -> None:
        program = self.home / f"block_{block.line}.py"
        program.write_text(self.here(block.text) + "\n")
        if re.search(r"^(async )?def test_", block.text, re.MULTILINE):
            self.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)])
            return
        self.program([sys.executable, str(program)], block)

    def js(self, block: Block) -> None:
        need("Node", bool(shutil.which("node")))
        need("gRPC for Node", (cache_dir() / "node" / ".complete").exists())
        self.environment["NODE_PATH"] = str(cache_dir() / "node" / "node_modules")
        program = self.home / f"block_{block.line}.js"
        program.write_text(self.here(block.text) + "\n")
        self.program(["node", str(program)], block)

    def program(self, command: list[str], block: Block) -> None:
        printed = self.run(command)
        if told := re.findall(r"(?:#|//) → (.*)$", block.text, re.MULTILINE):
            check(told, printed.splitlines(), f"the program in line {block.line}")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """What is typed, with what it is said to print. A line that ends with a backslash goes on."""
    for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = typed.rstrip("\n").split("\n")
        command = lines.pop(0)
        while command.endswith("\\"):
            command = f"{command[:-1]}{lines.pop(0)}"
        yield re.sub(r"\s+#.*$", "", command), lines


def check(told: list[str], printed: list[str], what: str) -> None:
    """Line by line the same, but for what the page leaves out."""
    patterns = [re.escape(line.rstrip()).replace("…", ".*") for line in told]
    seen = [line.rstrip() for line in printed]
    matches = len(patterns) == len(seen) and all(map(re.fullmatch, patterns, seen))
    assert matches, f"{what}: the page says\n{chr(10).join(told)}\nand this came\n{chr(10).join(printed)}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_right(page: Path, broker: LevadaBroker, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("src", "examples"):  # where the pages say the protos and pipelines are
        (home / name).symlink_to(ROOT / name)
    reader = Reader(home, broker)
    for block in blocks(page):
        getattr(reader, block.language)(block)


def test_the_pages_that_show_commands_are_run() -> None:
    assert {"README.md", "client.md", "grpc.md"} <= {page.name for page in PAGES}
