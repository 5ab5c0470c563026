"""The programs of docs/python.md and of the package's docstring run as they stand."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx_external

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def run_programs(text: str, tiny: Path, folder: Path) -> int:
    for name in ("graph.onnx", "checkpoint.pt"):
        shutil.copy(tiny / name, folder)
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for program in programs:
        result = subprocess.run(
            [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
        )
        assert result.returncode == 0, program + result.stderr
    return len(programs)


def test_the_programs_of_the_page_run(tiny: Path, tmp_path: Path) -> None:
    assert run_programs(PAGE.read_text(), tiny, tmp_path) >= 3


def test_the_docstring_s_program_runs(tiny: Path, tmp_path: Path) -> None:
    text = onnx_external.__doc__.replace("fc.weight", "module.transformer.wte.weight")
    assert run_programs(text, tiny, tmp_path) == 1
