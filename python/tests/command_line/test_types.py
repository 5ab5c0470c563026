"""Tests that type checkers accept the programs in the docs and docstrings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_external

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs").glob("*.md"))

# Packages whose own types are not checked.
CONFIGURATION = """
[mypy]
strict = True
# Classes of torch, whose types are not checked.
disallow_subclassing_any = False
[mypy-torch.*,onnx.*,onnx_ir.*,onnxruntime.*,transformers.*,ml_dtypes.*]
follow_imports = skip
ignore_missing_imports = True
"""


def programs() -> list[str]:
    texts = [page.read_text() for page in PAGES] + [onnx_external.__doc__ or ""]
    found = [
        program
        for text in texts
        for program in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]
    return [program for program in found if "import onnx_external" in program]


# The package's types are not Any, so the checker finds names that do not exist.
WRONG = """
import onnx_external as oe
oe.save("a.onnx", "b.onnx", layot="single")
print(oe.verify("b.onnx").okay)
"""


def test_every_program_passes_mypy_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert len(programs()) >= 3
    for number, program in enumerate(programs()):
        (tmp_path / f"program_{number}.py").write_text(program)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", *files],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in result.stdout.splitlines() if ": error:" in line]
    assert {line.split(":")[0] for line in errors} == {"wrong.py"}, result.stdout
    assert "layot" in errors[0] and "okay" in errors[-1]
