"""Tests that an exported graph has metadata about its code, but not about the machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import onnx_external as oe  # noqa: E402
from onnx_external.torch._metadata import portable_name  # noqa: E402

SOURCE = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)
    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()

class Net(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        if x.sum() > 0:
            x = x * 2
        return x.flatten(1)
"""
SCOPES, FX_NODE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node"


def net_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Return a module of a package whose source is in the process's working folder."""
    package = folder / "nets"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "deep.py").write_text(SOURCE)
    monkeypatch.chdir(folder)
    spec = importlib.util.spec_from_file_location("nets.deep", package / "deep.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nets.deep", module)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.Net(**options).eval()


def sets() -> list[tuple[Any]]:
    rows = [torch.linspace(-1, 1, 8 * n).reshape(n, 1, 8) for n in (2, 3)]
    return [(rows[0] + 9,), (rows[1] - 9,), (rows[1] + 9,)]


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and its branches."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def texts_of(what: Any) -> dict[str, str]:
    return {each.key: each.value for each in what.metadata_props}


def test_the_same_export_in_two_folders_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for home in ("ann/work", "bob/a/longer/path"):
        module = net_in(tmp_path / home, monkeypatch)
        first, *others = sets()
        oe.torch.export(module, first, "out/model.onnx", input_sets=others, check=False)
        found.append(Path("out/model.onnx").read_bytes())
        for part in (*tmp_path.parts[1:], "ann", "bob", "site-packages"):
            assert part.encode() not in found[-1], part
    assert found[0] == found[1]


def test_nodes_record_their_scopes_and_the_line_that_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = sets()
    skeleton = oe.torch.skeleton(net_in(tmp_path, monkeypatch), first, input_sets=others)
    graph = onnx.ModelProto.FromString(skeleton.SerializeToString()).graph
    assert texts_of(graph)["pkg.onnx_external.files"] == "nets/deep.py"
    lines = {node.op_type: texts_of(node)["line"] for node in nodes_of(graph)}
    assert (lines["Relu"], lines["ReduceSum"]) == ("deep.py:10", "deep.py:19")
    scopes = [texts_of(node)[SCOPES] for node in graph.node if node.op_type == "Relu"]
    assert scopes[1] == "['', 'layers.1', 'relu_1']"
    told = {key for node in nodes_of(graph) for key in texts_of(node)}
    assert told <= {"line", SCOPES, FX_NODE, "pkg.onnxscript.rewriter.rule_name"}


def test_texts_of_torch_stay_where_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skeleton = oe.torch.skeleton(net_in(tmp_path, monkeypatch, count=1), *sets()[:1])
    graph = onnx.ModelProto.FromString(skeleton.SerializeToString()).graph
    told = {node.op_type: FX_NODE in texts_of(node) for node in graph.node}
    assert told["LayerNormalization"] and told["MatMul"] and not told["Relu"]


def test_metadata_is_smaller_than_the_graph_that_it_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skeleton = oe.torch.skeleton(net_in(tmp_path, monkeypatch, count=12), *sets()[:1])
    model = onnx.ModelProto.FromString(skeleton.SerializeToString())
    whole = model.ByteSize()
    for node in nodes_of(model.graph):
        node.ClearField("metadata_props")
    assert model.ByteSize() > 0.4 * whole


def test_a_graph_of_the_callers_keeps_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, first = net_in(tmp_path, monkeypatch, count=1), sets()[0]
    program = torch.export.export(module.layers[0], first, strict=False)
    graph = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
    before = graph.model_proto.SerializeToString()
    oe.torch.export(graph, first, "model.onnx", check=False)
    assert graph.model_proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("packages", "path", "name"),
    [
        ([], "home/ann/net.py", "net.py"),
        (["lib/nets", "lib/nets/vision"], "lib/nets/vision/vit.py", "nets/vision/vit.py"),
        (["lib/nets/vision"], "lib/nets/vision/vit.py", "vision/vit.py"),
        (
            ["cache/transformers_modules", "cache/transformers_modules/ann"],
            "cache/transformers_modules/ann/modeling.py",
            "modeling.py",
        ),
    ],
)
def test_files_are_named_from_their_package_on(
    packages: list[str], path: str, name: str, tmp_path: Path
) -> None:
    for package in packages:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    assert portable_name(str(tmp_path / path)) == name


def test_files_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = net_in(tmp_path / "one", monkeypatch, count=1)
    other = tmp_path / "other" / "deep.py"
    other.parent.mkdir()
    other.write_text(SOURCE.replace("x = layer(x)", "x = layer(x).exp()"))
    spec = importlib.util.spec_from_file_location("deep", other)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deep", module)
    spec.loader.exec_module(module)
    net = module.Net(1).eval()
    net.layers[0] = inner.layers[0]
    first, *others = sets()
    skeleton = oe.torch.skeleton(net, first, input_sets=others)
    graph = onnx.ModelProto.FromString(skeleton.SerializeToString()).graph
    lines = {node.op_type: texts_of(node)["line"] for node in nodes_of(graph)}
    assert (lines["Relu"], lines["Exp"]) == ("nets/deep.py:10", "deep.py:18")
