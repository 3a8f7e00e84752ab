"""docs/settings.md says what config.py says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from levada.cli.settings import Settings
from levada.config import BROKER_SETTINGS, TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_script", ROOT / "scripts" / "settings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_what_the_script_writes(script: ModuleType) -> None:
    assert script.page(PAGE) == PAGE, "run scripts/settings.py"


def test_every_setting_has_a_row_with_its_default() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()):
        [row] = re.findall(rf"^\| `{re.escape(setting.name)}` .*$", PAGE, re.MULTILINE)
        assert f"`{setting.default}`" in row if setting.default else "–" in row


def names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """`kafka.port` and the like: everything the file may say beside the tables [broker] and [topic]."""
    found = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += names(kind, f"{prefix}{name}.")
        elif name not in ("broker", "topic"):
            found.append(prefix + name)
    return found


def test_everything_the_file_may_say_is_on_the_page_with_its_variable() -> None:
    for name in names(Settings):
        variable = f"LEVADA_{name.upper().replace('.', '__')}"
        assert re.search(rf"^\| .* \| `{re.escape(name)}` \| `{variable}` \|", PAGE, re.MULTILINE), name
