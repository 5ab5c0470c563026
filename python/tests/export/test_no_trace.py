"""Tests that an export leaves the process unchanged if it succeeds, fails or is interrupted.

ONNX_EXTERNAL_MOMENTS=50 interrupts each kind of export at 50 moments instead of a few.
"""

from __future__ import annotations

import copy
import functools
import os
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from process_state import (  # noqa: E402
    calls_of,
    differences,
    folder_of,
    interrupted_at,
    moments,
    process,
    written,
)
from torch import nn  # noqa: E402

import onnx_external as oe  # noqa: E402

FEW = 10
MOMENTS = int(os.environ.get("ONNX_EXTERNAL_MOMENTS", "0"))
TABLES: dict[str, Any] = {}
BY_MODULE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
LOCAL = threading.local()
COUNT = 0
TABLE: Any = None


def table_of(count: int = 32) -> Any:
    angles = torch.arange(count)[:, None] / 100.0 ** (torch.arange(4)[None] / 4)
    return torch.cat([angles.sin(), angles.cos()], -1)


@functools.lru_cache
def cached_table(count: Any) -> Any:
    return table_of(count)


@functools.cache
def fixed_table() -> Any:
    return table_of()


class Store:
    """Stores a value that a module computes only once."""

    __slots__ = ("__weakref__", "table")

    def __init__(self) -> None:
        self.table: Any = None


class Base(nn.Module):
    """Adds a table to the input of a layer."""

    table: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.store = Store()
        self.kept: dict[str, Any] = {}

    def found(self, x: Any) -> Any:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        return self.linear(x + self.found(x)[: x.shape[1]])


class InAttribute(Base):
    def found(self, x: Any) -> Any:
        if not hasattr(self, "made"):
            self.made = table_of()
        return self.made


class InSlot(Base):
    def found(self, x: Any) -> Any:
        if self.store.table is None:
            self.store.table = table_of()
        return self.store.table


class InClass(Base):
    def found(self, x: Any) -> Any:
        if InClass.table is None:
            InClass.table = table_of()
        return InClass.table


class InDict(Base):
    def found(self, x: Any) -> Any:
        if "table" not in self.kept:
            self.kept["table"] = TABLES["table"] = table_of()
        return TABLES["table"]


class InGlobal(Base):
    def found(self, x: Any) -> Any:
        global COUNT, TABLE
        COUNT += 1
        if TABLE is None:
            TABLE = table_of()
        return TABLE


class InFunction(Base):
    def found(self, x: Any) -> Any:
        if not hasattr(table_of, "kept"):
            table_of.kept = table_of()  # type: ignore[attr-defined]
        return table_of.kept  # type: ignore[attr-defined]


class ByModule(Base):
    def found(self, x: Any) -> Any:
        if self not in BY_MODULE:
            BY_MODULE[self] = LOCAL.table = table_of()
        return BY_MODULE[self] + LOCAL.table


class InCache(Base):
    def found(self, x: Any) -> Any:
        return cached_table(x.shape[1]) + fixed_table()[: x.shape[1]]


class InMethod(Base):
    @staticmethod
    @functools.lru_cache
    def of(count: Any) -> Any:
        return table_of(count)

    def found(self, x: Any) -> Any:
        return self.of(x.shape[1])


class Branches(InAttribute):
    """A module that is rewritten."""

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        if y.sum() > 0:
            y = y * 2
        return y


class Refused(Base):
    """A module whose trace fails inside a functorch transformation."""

    def found(self, x: Any) -> Any:
        self.made = table_of()
        inner = torch.func.vmap(torch.func.grad(lambda each: (each * float(each.sum())).sum()))
        return inner(x.reshape(-1, 8)).reshape(x.shape)[0] + self.made[x.shape[1]]


class BySize(InClass):
    """A module that looks up a size, so it has no graph if the size varies."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * {5: 1.0, 7: 2.0}[x.shape[1]]


KEPT = (
    InAttribute, InSlot, InClass, InDict, InGlobal, InFunction, ByModule, InCache, InMethod,
    Branches,
)  # fmt: skip


def x_of(rows: int, length: int) -> tuple[Any]:
    return (torch.linspace(-1, 1, rows * length * 8).reshape(rows, length, 8),)


def state_of(module: nn.Module) -> dict[str, Any]:
    beside = {
        "tables": TABLES,
        "by module": dict(BY_MODULE),
        "local": vars(LOCAL),
        "globals": {"COUNT": COUNT, "TABLE": TABLE},
        "function": vars(table_of),
        "caches": [each.cache_info().currsize for each in (cached_table, fixed_table, InMethod.of)],
    }
    slots = [getattr(each, "store", Store()).table for each in module.modules()]
    return {**process(), **written(module, {**beside, "slots": slots})}


def unchanged(module: nn.Module, run: Callable[[], Any]) -> Any:
    """Call `run`, and fail unless the process and the module are unchanged."""
    before = state_of(module)
    try:
        return run()
    finally:
        assert differences(before, state_of(module)) == []


@pytest.fixture(scope="module", autouse=True)
def _all_is_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make torch and transformers do all imports that they do once."""
    path = tmp_path_factory.mktemp("first") / "model.onnx"
    oe.torch.export(Branches().eval(), x_of(2, 5), path, input_sets=[x_of(3, 7)])
    oe.diagnose_export(Branches().eval(), [x_of(2, 5)], rewrite=False, run=False, progress=False)


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with mock.patch.object(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary"))):
        yield


@pytest.mark.parametrize("kind", KEPT, ids=lambda each: each.__name__)
def test_an_export_leaves_what_code_keeps_as_it_was(kind: type[Base], tmp_path: Path) -> None:
    module, sets = kind().eval(), [x_of(3, 7)]
    path = tmp_path / "model.onnx"
    report = unchanged(module, lambda: oe.torch.export(module, x_of(2, 5), path, input_sets=sets))
    assert report.checked == 2
    unchanged(module, lambda: oe.torch.skeleton(module, x_of(2, 5), input_sets=sets))
    assert type(copy.deepcopy(module)(*x_of(2, 9))) is torch.Tensor


def test_a_refusal_leaves_everything_as_it_was(tmp_path: Path) -> None:
    module = Refused().eval()

    def run() -> None:
        with pytest.raises(oe.ExportError):
            oe.torch.export(module, x_of(2, 5), tmp_path / "model.onnx", input_sets=[x_of(3, 7)])

    unchanged(module, run)
    assert folder_of(tmp_path) == []


def test_a_diagnosis_leaves_everything_unchanged() -> None:
    module = nn.Sequential(BySize(), InSlot()).eval()
    sets = [x_of(2, 5), x_of(3, 7)]
    found = unchanged(module, lambda: oe.diagnose_export(module, sets, progress=False))
    assert [each.name for each in found.wrong] == ["0"]


def test_torch_logs_nothing_of_an_export(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Taps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(10))
            self.head = nn.Linear(24, 3)

        def forward(self, x: Any) -> Any:
            kept = []
            for number, layer in enumerate(self.layers):
                x = layer(x).relu()
                if number in (2, 5, 9):
                    kept.append(x)
            return self.head(torch.cat(kept, -1))

    oe.torch.export(Taps().eval(), x_of(2, 4), tmp_path / "model.onnx", input_sets=[x_of(3, 6)])
    assert capfd.readouterr() == ("", "")


def exports(path: Path, module: Any) -> dict[str, Callable[[], Any]]:
    sets = [x_of(3, 7)]
    return {
        "export": lambda: oe.torch.export(module, *x_of(2, 5), path, input_sets=sets),
        "skeleton": lambda: oe.torch.skeleton(module, x_of(2, 5), input_sets=sets),
        "diagnose_export": lambda: oe.diagnose_export(
            module, [x_of(2, 5), *sets], progress=False, run=False
        ),
    }


def interrupted(run: Callable[[], Any], number: int) -> bool:
    """Call `run`, interrupt it, and return whether it noticed.

    At some places, torch's C++ code drops a Python exception and reports its own error.
    """
    try:
        with interrupted_at(number):
            run()
    except (KeyboardInterrupt, oe.ExportError):
        return True
    return False


def clear(folder: Path) -> None:
    for each in folder_of(folder):
        (folder / each).unlink()


def run_alone(test: Callable[[int], None]) -> None:
    """Run a test in a fork of this process, with a number to add to the moments of its interrupts.

    torch's C++ code ends the process if a Python exception arrives where it must not throw. This is
    not under test, so the test is then repeated at other moments.
    """
    for later in range(3):
        code = code_of_fork(lambda number=997 * later: test(number))
        if code != -signal.SIGABRT:
            break
    assert code == 0


def code_of_fork(run: Callable[[], None]) -> int:
    """Return how a fork of this process that runs something ends: 0, 1, or minus its signal."""
    process = os.fork()
    if not process:
        code = 1
        try:
            torch.set_num_threads(1)  # those of the parent are not in the fork
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("way", ["export", "skeleton", "diagnose_export"])
def test_ctrl_c_leaves_everything_as_it_was(way: str, tmp_path: Path) -> None:
    def test(later: int) -> None:
        module, out = Branches().eval(), tmp_path / f"out{later}"
        run = exports(out / "model.onnx", module)[way]
        calls = calls_of(run)
        noticed = 0
        for number in moments(MOMENTS or FEW // 3, calls):
            clear(out)
            noticed += unchanged(module, lambda at=number + later: interrupted(run, at))
            assert not {each for each in folder_of(out) if not each.startswith("model")}
        clear(out)
        assert noticed
        unchanged(module, run)

    run_alone(test)


def test_ctrl_c_leaves_everything_as_it_was_after_an_export_of_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.exporters")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=32, num_hidden_layers=1, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")

    def run() -> None:
        options = {"check": False, "overwrite": True, "repeat": False}
        oe.transformers.export(tmp_path / "model", tmp_path / "out", **options)

    nothing = nn.Linear(1, 1)

    def test(later: int) -> None:
        run()
        calls = calls_of(run) if MOMENTS else 300_000
        for number in moments(MOMENTS or 2, calls):
            unchanged(nothing, lambda at=number + later: interrupted(run, at))
        unchanged(nothing, run)

    run_alone(test)
