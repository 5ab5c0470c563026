"""Tests that torch.onnx's functions are read only once."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch

pytest.importorskip("torch.onnx._internal.exporter._registration")
pytest.importorskip("onnxscript")

from torch.onnx._internal.exporter import _registration
from torch.onnx._internal.exporter._torchlib import _torchlib_registry

from onnx_external.torch import _conversions
from onnx_external.torch._conversions import conversions_kept


@functools.cache
def registry_of_torch() -> Any:
    return _registration.ONNXRegistry.from_torchlib()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the versions for which the functions were read: half a second each, here once."""
    versions: list[int] = []
    plain = registry_of_torch()

    def counted(opset_version: int = 18) -> Any:
        versions.append(opset_version)
        made = copy.copy(plain)
        made._opset_version = opset_version
        made.functions = {target: list(each) for target, each in plain.functions.items()}
        return made

    monkeypatch.setattr(_conversions, "_read", {})
    monkeypatch.setattr(_registration.ONNXRegistry, "from_torchlib", staticmethod(counted))
    return versions


def test_functions_are_read_once_for_each_version(read: list[int]) -> None:
    for _ in range(2):
        with conversions_kept():
            for version in (18, 20, 18):
                registry = _registration.ONNXRegistry().from_torchlib(opset_version=version)
                assert registry.opset_version == version
    assert read == [18, 20]
    _registration.ONNXRegistry.from_torchlib()
    assert read == [18, 20, 18]  # torch is unchanged


def test_functions_are_read_again_when_another_was_registered(
    read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversions_kept():
        _registration.ONNXRegistry.from_torchlib()
        known = [*_torchlib_registry.get_torchlib_ops()]
        monkeypatch.setattr(_torchlib_registry, "_registry", [*known, known[0]])
        _registration.ONNXRegistry.from_torchlib()
    assert len(read) == 2


def test_functions_of_operators_that_an_import_registers_are_read(read: list[int]) -> None:
    with conversions_kept():
        _registration.ONNXRegistry.from_torchlib()
        torch.library.define("conversions_test::twice", "(Tensor x) -> Tensor")
        _registration.ONNXRegistry.from_torchlib()
        _registration.ONNXRegistry.from_torchlib()
    assert len(read) == 2


def test_what_an_export_registers_is_its_own(read: list[int]) -> None:
    with conversions_kept():
        first = _registration.ONNXRegistry.from_torchlib()
        target = next(iter(first.functions))
        first.functions[target].clear()
        first.functions["its::own"] = []
        again = _registration.ONNXRegistry.from_torchlib()
    assert again.functions[target] and "its::own" not in again.functions
    assert len(read) == 1


def test_few_registries_are_kept(read: list[int]) -> None:
    with conversions_kept():
        for version in range(10, 20):
            _registration.ONNXRegistry().from_torchlib(opset_version=version)
    assert len(read) == 10 and len(_conversions._read) <= 4
