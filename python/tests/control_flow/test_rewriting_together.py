"""Tests of exports in several threads at once, and of modules that write to globals."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnx_external as oe  # noqa: E402

UP, DOWN = torch.ones(3, 2), -torch.ones(2, 2)
last: Any = None


class Decides(torch.nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x * self.factor
        return x - self.factor


def test_two_threads_export_modules_of_one_class_at_once(tmp_path: Path) -> None:
    code, start = Decides.forward.__code__, threading.Barrier(2)
    found: dict[int, Any] = {}

    def export(factor: int) -> None:
        start.wait()
        try:
            path = str(tmp_path / f"{factor}.onnx")
            found[factor] = oe.torch.export(Decides(factor), (UP,), path, input_sets=[(DOWN,)])
        except Exception as error:
            found[factor] = error

    threads = [threading.Thread(target=export, args=(factor,)) for factor in (2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for factor, report in sorted(found.items()):
        assert isinstance(report, oe.torch.ExportReport), report
        assert report.checked == 2, factor
    assert len(found) == 2
    assert Decides.forward.__code__ is code


class WritesAGlobal(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        global last
        if x.sum() > 0:
            last = x[0] * 2
        else:
            last = x[0]
        return last + 1


def test_a_branch_may_write_to_a_global(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    global last
    last = before = torch.zeros(2)
    assert oe.torch.export(WritesAGlobal(), (UP,), path, input_sets=[(DOWN,)]).checked == 2
    assert last is before  # neither the comparison nor the trace leaves a new value
