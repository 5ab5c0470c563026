"""What an export needs is asked before anything is traced."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")


class Untraced(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        raise AssertionError("it was run")


def test_a_missing_package_is_named_before_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> Any:
        return None if name == "onnxscript" else find_spec(name)

    monkeypatch.setattr("onnx_external.torch.preconditions.find_spec", without)
    module, x = Untraced().eval(), torch.ones(2)
    told = "torch.onnx needs onnxscript, which is not installed: pip install onnxscript"
    with pytest.raises(oe.ExportError, match=told):
        oe.torch.export(module, x, tmp_path / "model.onnx")
    with pytest.raises(oe.ExportError, match=told):
        oe.torch.skeleton(module, x)
    with pytest.raises(oe.ExportError, match=told):
        oe.diagnose_export(module, x)


@pytest.mark.parametrize("path", ["out", "out/model.onnx"])
def test_a_model_that_is_there_is_told_before_the_trace(path: str, tmp_path: Path) -> None:
    model = tmp_path / "out/model.onnx"
    model.parent.mkdir()
    model.write_bytes(b"kept")
    with pytest.raises(oe.ExistsError) as caught:
        oe.torch.export(Untraced().eval(), torch.ones(2), tmp_path / path)
    assert str(caught.value) == f"{model}: exists\n  overwrite=True: replaces it"
    with pytest.raises(oe.ExistsError) as of_save:
        oe.save(oe.torch.skeleton(torch.nn.Linear(1, 1), torch.ones(1, 1)), model)
    assert str(of_save.value) == str(caught.value) and model.read_bytes() == b"kept"


def test_arguments_of_torch_onnx_are_shown_in_their_new_place(tmp_path: Path) -> None:
    module, x = Untraced().eval(), torch.ones(2)
    names = {"input_names": ["x"], "output_names": ["y"]}
    with pytest.raises(TypeError) as caught:
        oe.torch.export(module, x, tmp_path / "model.onnx", **names)  # type: ignore[call-arg]
    assert str(caught.value) == (
        "oe.torch.export has no input_names=, output_names=; write "
        "oe.torch.export(..., onnx_options={'input_names': ['x'], 'output_names': ['y']})"
    )
    with pytest.raises(TypeError, match=r"write .*, dynamic_shapes=\{'argument': \{0: 'rows'\}\}"):
        oe.torch.skeleton(module, x, dynamic_axes={"x": {0: "rows"}})  # type: ignore[call-arg]
