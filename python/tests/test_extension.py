"""The extension lives beside others: one exported symbol, any order of imports."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_external._core as core

MODULES = ("torch", "onnx", "onnxruntime", "onnx_external")


def test_one_symbol_is_exported() -> None:
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", core.__file__], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    # Lower case: local symbols, which nobody can bind to.
    names = [line.split()[-1] for line in lines if line.split()[-2].isupper()]
    assert names == ["PyInit__core"]


@pytest.mark.parametrize("order", list(itertools.permutations(MODULES)), ids="-".join)
def test_any_order_of_imports_works(order: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    for name in MODULES:
        pytest.importorskip(name)
    save = (
        f"onnx_external.save({str(tiny / 'graph.onnx')!r}, {str(tmp_path)!r} + '/' + str(number),"
        f" {str(tiny / 'checkpoint.pt')!r})"
    )
    lines = ["number = 0"]
    for name in order:
        lines.append(f"import {name}")
        if "import onnx_external" in lines:
            lines += ["number += 1", save]
        if name == "onnx":
            lines.append(
                f"onnx.checker.check_model(onnx.load({str(tiny / 'untrained_graph.onnx')!r}))"
            )
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_importing_takes_numpy_and_nothing_else() -> None:
    program = (
        "import sys, numpy; before = set(sys.modules); import onnx_external;"
        "print({'torch', 'onnx', 'onnxruntime', 'tqdm', 'ml_dtypes'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "set()"
