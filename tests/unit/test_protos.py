"""The generated code is what `make proto` generates from the protos as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = Path("levada/v1")


def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    protos = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / PACKAGE).glob("*.proto"))
    out = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *out, *protos], cwd=SOURCE, check=True)
    made = {path.name: path.read_text() for path in (tmp_path / PACKAGE).iterdir()}
    kept = {path.name: path.read_text() for path in (SOURCE / PACKAGE).glob("*_pb2*")}
    assert set(made) == set(kept)
    changed = [name for name in made if made[name] != kept[name]]
    assert not changed, "run `make proto`"
