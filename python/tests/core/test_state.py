"""Tests of state that forward changes, and of state that a module keeps between calls."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

nn = torch.nn
QUIET = {"fsync": False, "progress": False}


class Smooth(nn.Module):  # type: ignore[misc,name-defined]
    """Updates a running mean and returns the distance from this mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


class Cache(nn.Module):  # type: ignore[misc,name-defined]
    """Writes to a view of an input."""

    def forward(self, x: Any, caches: Any) -> Any:
        first, _ = caches["keys"].unbind(1)
        first.copy_(2 * x)
        return {"sum": caches["keys"].sum(1)}


def outputs(path: Path, *given: Any) -> dict[str, Any]:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, (each.numpy() for each in given), strict=True))
    every = [each.name for each in session.get_outputs()]
    return dict(zip(every, session.run(None, feed), strict=True))


def test_a_buffer_that_forward_updates_is_noted_or_an_output(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Smooth().eval(), torch.randn(3, 4)
    path = tmp_path / "model.onnx"
    report = oe.torch.export(module, (x,), path, **QUIET)
    note = "forward changes the buffer 'mean', but the graph does not"
    assert report.checked == 1 and any(each.startswith(note) for each in report.notes)
    assert note in str(report) and not module.mean.any()
    report = oe.torch.export(module, (x,), path, state="outputs", overwrite=True, **QUIET)
    assert report.checked == 1 and not any(each.startswith(note) for each in report.notes)
    found = outputs(path, x)
    assert list(found)[1:] == ["output.mean"]
    np.testing.assert_allclose(found["output.mean"], 0.1 * x.mean(0).numpy(), rtol=1e-5)
    assert not module.mean.any()


def test_an_input_that_forward_writes_is_noted_or_an_output(tmp_path: Path) -> None:
    x, keys = torch.randn(3, 4), torch.randn(3, 2, 4)
    path = tmp_path / "model.onnx"
    given = (x, {"keys": keys})
    report = oe.torch.export(Cache().eval(), given, path, **QUIET)
    told = [each for each in report.notes if each.startswith("forward changes")]
    assert len(told) == 1 and "the input 'caches.keys'" in told[0]
    options = {"state": "outputs", "overwrite": True, **QUIET}
    report = oe.torch.export(Cache().eval(), given, path, **options)
    assert report.checked == 1
    found = outputs(path, x, keys)
    assert list(found) == ["sum", "caches.keys"]
    np.testing.assert_allclose(found["caches.keys"][:, 0], 2 * x.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(found["caches.keys"][:, 1], keys[:, 1].numpy())


def test_a_wrong_new_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_external.torch import _checking

    plain = _checking.from_torch
    monkeypatch.setattr(_checking, "from_torch", lambda tensor: plain(tensor) + 1)
    with pytest.raises(oe.ExportError, match=r"output output\.mean differs"):
        oe.torch.export(
            Smooth().eval(), (torch.ones(3, 4),), tmp_path / "model.onnx", state="outputs", **QUIET
        )
    assert not any(tmp_path.iterdir())


def test_what_a_module_keeps_for_its_next_call_is_noted(tmp_path: Path) -> None:
    class Counts(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.table = 0, None

        def forward(self, x: Any) -> Any:
            if self.table is None:
                self.table = torch.arange(4.0)
            self.calls += 1
            return x * self.table * min(self.calls, self.most)

    module, x = Counts().eval(), torch.randn(3, 4)
    for most, noted in ((1, False), (2, True)):
        module.most = most
        path = tmp_path / f"{most}.onnx"
        report = oe.torch.export(module, (x,), path, **QUIET)
        told = [each for each in report.notes if "when it is called again" in each]
        assert bool(told) == noted and report.checked == 1
        assert not noted or "Counts.calls" in told[0]
    assert module.calls == 0
    validated = oe.validate(path, module, [(x,), (x + 1,)])
    assert validated.ok and "when it is called again" in validated.graphs[0].notes[0]
    assert module.calls == 0


HISTORY: list[Any] = []


def test_lists_that_grow_with_each_call_are_noted_if_results_depend_on_them(
    tmp_path: Path,
) -> None:
    class Keeps(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

    class Averages(Keeps):
        def forward(self, x: Any) -> Any:
            self.seen.append(x * 2)
            return torch.stack(self.seen[-2:]).mean(0)  # the same result for the same input

    class Counts(Keeps):
        def forward(self, x: Any) -> Any:
            HISTORY.append(1)
            return x * len(HISTORY)

    class Logs(Keeps):
        def forward(self, x: Any) -> Any:
            self.seen.append(x * 2)
            return self.seen[-1]

    x = torch.randn(3, 4)
    for kind, kept in ((Averages, "Averages.seen[0]"), (Counts, "HISTORY[0]"), (Logs, "")):
        report = oe.torch.export(kind().eval(), (x,), tmp_path / f"{kind.__name__}.onnx", **QUIET)
        told = [each for each in report.notes if "when it is called again" in each]
        assert len(told) == bool(kept) and all(kept in each for each in told)
    assert HISTORY == []


def test_a_module_that_changes_nothing_gets_no_note(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.GRU(4, 3))
    x = torch.randn(5, 4)
    for state in ("note", "outputs"):
        path = tmp_path / state / "model.onnx"
        report = oe.torch.export(layers.eval(), (x,), path, state=state, **QUIET)
        assert not [each for each in report.notes if "chang" in each or "again" in each]
        assert len(onnx.load(path).graph.output) == 2


def test_the_state_of_a_program_is_noted_and_no_other_word_is_taken(tmp_path: Path) -> None:
    x = torch.ones(3, 4)
    program = torch.export.export(Smooth().eval(), (x,))
    for number, each in enumerate((program, program.run_decompositions({}))):
        report = oe.torch.export(each, (x,), tmp_path / f"{number}.onnx", **QUIET)
        assert any("the buffer 'mean'" in note for note in report.notes)
    with pytest.raises(oe.InvalidArgumentError, match="needs a module"):
        oe.torch.export(program, (x,), tmp_path / "no.onnx", state="outputs")
    with pytest.raises(oe.InvalidArgumentError, match="state: 'output' is not one of"):
        oe.torch.export(Smooth().eval(), (x,), tmp_path / "no.onnx", state="output")
