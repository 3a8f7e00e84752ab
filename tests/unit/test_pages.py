"""What the pages under docs/ call by name is there under that name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import levada
from levada.cli.app import app
from levada.client.faces import Manager
from levada.config import BROKER_SETTINGS, TOPIC_SETTINGS
from levada.errors import all_errors
from levada.v1 import cluster_pb2, stream_pb2

ROOT = Path(__file__).resolve().parents[2]
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "levada"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = sorted(DOCS.glob("*.md"))
COMING_FROM = (DOCS / "coming-from.md").read_text()
OF_PYTHON = {"client": levada.Client, "manager": Manager, "producer": levada.Producer, "consumer": levada.Consumer}


@pytest.fixture(scope="module")
def calls() -> set[str]:
    services = (
        stream_pb2.DESCRIPTOR.services_by_name["StreamService"],
        cluster_pb2.DESCRIPTOR.services_by_name["ClusterService"],
    )
    return {method.name for service in services for method in service.methods}


def test_every_method_of_the_client_exists() -> None:
    named = re.findall(r"\b(client|manager|producer|consumer)\.(\w+)\(", COMING_FROM)
    assert named
    assert [f"{owner}.{name}" for owner, name in named if not hasattr(OF_PYTHON[owner], name)] == []


def test_every_command_and_option_exists() -> None:
    root: Any = typer.main.get_command(app)
    lines = re.findall(r"`levada ((?:topic|group|cluster|produce|consume)\b[^`]*)`", COMING_FROM)
    assert lines
    for line in lines:
        words = line.split()
        command = root.get_command(None, words.pop(0))
        if hasattr(command, "commands") and words and words[0] != "…":
            command = command.commands[words.pop(0)]
        options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
        assert [word for word in words if word.startswith("--") and word not in options] == [], line


def test_every_grpc_call_exists(calls: set[str]) -> None:
    tables = [line.split(" | ")[3] for line in COMING_FROM.splitlines() if line.count(" | ") == 3 and "`" in line]
    named = [name for cell in tables for name in re.findall(r"`([A-Z]\w+)`", cell)]
    assert {"Publish", "Subscribe", "Read", "GetPlacement"} <= set(named)
    assert [name for name in named if name not in calls] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_of_ours_exists(page: Path) -> None:
    named = re.findall(r"\b(levada\.(?:durability|router|keyless|dedup|enqueue)[a-z.]*)\b", page.read_text())
    known = {*TOPIC_SETTINGS, *BROKER_SETTINGS}
    assert [name for name in named if name.rstrip(".") not in known] == []


def test_every_error_named_on_the_grpc_page_exists() -> None:
    known = {kind.__name__ for kind in all_errors()}
    named = {
        "UnknownTopic",
        "PartitionsCannotShrink",
        "OffsetOutOfRange",
        "Overloaded",
        "StorageFull",
        "IllegalGeneration",
    }
    page = (DOCS / "grpc.md").read_text()
    assert all(name in page and name in known for name in named)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "ARCHITECTURE.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_file_the_architecture_names_exists() -> None:
    named = set(re.findall(r"[a-z_0-9/]+\.(?:py|proto)\b", ARCHITECTURE))
    assert "engine/embedded/partition.py" in named
    found = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.*")]
    found += [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")]
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in found)] == []


def test_every_layer_has_a_row_in_the_architecture() -> None:
    layers = {path.stem if path.is_file() else path.name for path in SOURCE.iterdir()}
    own = {layer for layer in layers if not layer.startswith("__") and layer != "py"}
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", ARCHITECTURE, re.MULTILINE)
    named = {name.removesuffix(".py").split("/")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert own <= named
