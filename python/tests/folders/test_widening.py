"""Tests of float32 graphs that use the bytes of a bfloat16 folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
ir = pytest.importorskip("onnx_ir")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

from onnx_external._comparing.precision import weight_type  # noqa: E402
from onnx_external.torch._skeleton import Skeleton, Slot  # noqa: E402
from onnx_external.transformers._recording import Join, Key, Step  # noqa: E402
from onnx_external.transformers._saving import Graph  # noqa: E402
from onnx_external.transformers._widening import computing_type, widened  # noqa: E402


class Exported:
    """A tied bfloat16 Llama in two shards, and a graph that links to the shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = transformers.LlamaConfig(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
        )  # fmt: skip
        torch.manual_seed(0)
        made = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        made.save_pretrained(folder, max_shard_size="10KB")
        options: dict[str, Any] = dict(layout="link", overwrite=True, progress=False)
        self.report = oe.transformers.export(folder, folder, **options)
        self.model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("llama"))


def test_a_graph_of_float32_links_to_the_bytes_of_bfloat16(exported: Exported) -> None:
    report, path = exported.report, exported.folder / "model.onnx"
    assert report.checked == {"model": 9} and report.save.bytes == 0
    with oe.open_checkpoint(exported.folder) as checkpoint:
        assert len({tensor.file for tensor in checkpoint.values()}) > 1
        assert report.save.linked_bytes == sum(each.nbytes for each in checkpoint.values())
    assert report.inputs["model"]["past_key_values.0.key"].startswith("float32")
    assert report.outputs["model"]["logits"].startswith("float32")
    types = {tensor.name: tensor.dtype for tensor in oe.inspect(path).tensors}
    filled = {tensor.slot for tensor in report.graphs["model"].tensors if tensor.key}
    assert {types[name] for name in filled} == {"bfloat16"}
    assert any("the weights stay in bfloat16" in note for note in report.notes)
    assert oe.verify(path, against=exported.folder).ok


def test_it_is_held_to_float32_and_computes_what_transformers_does(exported: Exported) -> None:
    path = exported.folder / "model.onnx"
    assert weight_type(path) == weight_type(path.read_bytes()) == "float32"
    ids = torch.arange(10).reshape(2, 5) + 7
    with torch.no_grad():
        wanted = exported.model(input_ids=ids).logits.numpy()
    feed = {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 5), np.int64)}
    feed["position_ids"] = np.arange(5)[None].repeat(2, 0)
    for side in ("key", "value"):
        feed[f"past_key_values.0.{side}"] = np.zeros((2, 2, 0, 8), np.float32)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["logits"], feed)[0], wanted, atol=1e-5)


def graph_of(uses: str, made: Any) -> Graph:
    """Return a graph that uses the weight "w" directly (w), transposed (t) or in a Gather (g)."""
    weight = ir.Value(name="w", shape=ir.Shape([2, 2]), type=ir.TensorType(ir.DataType.FLOAT))
    index = ir.Value(name="i", shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.INT64))
    if "g" in uses:
        turned = ir.node("Gather", [weight, index], name="take")
    elif "t" in uses:
        turned = ir.node("Transpose", [weight], attributes={"perm": [1, 0]}, name="turn")
    nodes = []
    if uses != "w":
        turned.outputs[0].name, turned.outputs[0].shape = "turned", ir.Shape([2, 2])
        nodes = [turned, ir.node("Neg", [turned.outputs[0]])]
    nodes += [ir.node("Abs", [weight])] if "w" in uses else []
    outputs = [node.outputs[0] for node in nodes if node.op_type in ("Neg", "Abs")]
    for number, value in enumerate(outputs):
        value.name, value.type = f"y{number}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([index], outputs, nodes=nodes, initializers=[weight], opset_imports={"": 20})
    slots = {"w": Slot("w", "FLOAT", (2, 2), "parameter")}
    return Graph(Skeleton(ir.Model(graph, ir_version=10), slots), {"w": made}, None)


def cast(name: str) -> Step:
    return Step(Key(name), "cast")


@pytest.mark.parametrize(
    ("uses", "order"),
    [
        ("t", ["Transpose", "Cast", "Neg"]),
        ("w", ["Cast", "Abs"]),
        ("g", ["Gather", "Cast", "Neg"]),
        ("tw", ["Cast", "Transpose", "Cast", "Neg", "Abs"]),
    ],
)
def test_a_cast_stands_behind_a_weight_and_behind_what_only_moves_it(
    uses: str, order: list[str]
) -> None:
    found = widened(graph_of(uses, cast("a")), {"a": "BFLOAT16"})
    model = found.skeleton.model
    assert [node.op_type for node in model.graph] == order
    assert found.made == {"w": Key("a")} and found.skeleton.slots["w"].dtype == "BFLOAT16"
    assert model.graph.initializers["w"].dtype == ir.DataType.BFLOAT16
    if uses == "t":
        model.graph.initializers["w"].const_value = None
        saved = oe.save(found.skeleton, None, {"w": torch.eye(2).bfloat16()}, dry_run=True)
        assert [tensor.slot for tensor in saved.tensors] == ["w.transposed"]


def test_weights_of_several_keys_are_widened_if_all_have_the_type() -> None:
    narrow = {"a": "BFLOAT16", "b": "BFLOAT16"}
    joined = Join("stack", 0, (cast("a"), cast("b")))
    turned = Step(joined, "permute", (1, 0))
    plain = Step(Join("stack", 0, (Key("a"), Key("b"))), "permute", (1, 0))
    assert widened(graph_of("w", turned), narrow).made == {"w": plain}
    for made, keys in ((joined, {"a": "BFLOAT16"}), (Key("a"), narrow), (cast("c"), narrow)):
        graph = graph_of("w", made)
        assert widened(graph, keys).made == {"w": made}
        assert [node.op_type for node in graph.skeleton.model.graph] == ["Abs"]


def test_what_is_computed_in_follows_the_config_and_then_the_first_float() -> None:
    from types import SimpleNamespace

    half, whole = torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)
    for dtype, first, wanted in (
        (torch.bfloat16, whole, "float32"),
        ("bfloat16", whole, "float32"),
        (torch.float32, half, None),
        (torch.float16, half, None),
        (None, half, "float32"),
        (None, whole, None),
    ):
        state = {"n": torch.zeros(1, dtype=torch.int64), "w": first}
        assert computing_type(SimpleNamespace(dtype=dtype), state) == wanted
