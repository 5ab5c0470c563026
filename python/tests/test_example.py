"""The example runs from its first line to its last."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "transformers_model.py"


def test_a_model_of_transformers_is_exported_saved_verified_and_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.9")
    pytest.importorskip("transformers", minversion="5")
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    result = subprocess.run([sys.executable, EXAMPLE, tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "verified: True" in result.stdout and "ok: True" in result.stdout
