"""Tests of saves that keep the codes of quantized checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
safetensors = pytest.importorskip("safetensors.numpy")

Tensors = dict[str, Any]
RANDOM = np.random.default_rng(0)
WIDTH = 128
INNER = 192


class Layers(torch.nn.Module):
    """Two layers that read the same input, and a layer after them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, INNER, bias=False)
        self.up = torch.nn.Linear(WIDTH, INNER)
        self.down = torch.nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.down(torch.tanh(self.gate(x)) * self.up(x)).sum(-1)) * x[..., 0]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("graph")
    batch = torch.export.Dim("batch")
    oe.torch.export(
        Layers().eval(), (torch.zeros(2, 3, WIDTH),), folder, dynamic_shapes={"x": {0: batch}}
    )
    return folder / "model.onnx"


def shapes() -> dict[str, tuple[int, int]]:
    return {"gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER)}


def codes(rows: int, columns: int, bits: int) -> Any:
    return RANDOM.integers(0, 2**bits, (rows, columns), dtype=np.uint32)


def scales(rows: int, columns: int) -> Any:
    return RANDOM.uniform(0.001, 0.02, (rows, columns)).astype(np.float16)


def in_words(values: Any, bits: int) -> Any:
    """Pack each row of values into int32 words, the first value in the lowest bits."""
    in_word = 32 // bits
    grouped = values.reshape(values.shape[0], -1, in_word).astype(np.uint32)
    shifts = np.arange(in_word, dtype=np.uint32) * np.uint32(bits)
    return np.ascontiguousarray((grouped << shifts).sum(-1, dtype=np.uint32).view(np.int32))


def compressed_tensors(name: str, n: int, k: int) -> Tensors:
    return {
        f"{name}.weight_packed": in_words(codes(n, k, 4), 4),
        f"{name}.weight_scale": scales(n, k // 32),
        f"{name}.weight_shape": np.array([n, k], np.int64),
    }


COMPRESSED_TENSORS = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 32,
            },
        }
    },
    "ignore": [],
}


def gptq(bits: int, ordered: bool) -> Callable[[str, int, int], Tensors]:
    def tensors(name: str, n: int, k: int) -> Tensors:
        index = np.arange(k, dtype=np.int32) // 32
        # Layers that share an input have the same order, because their quantizer sees the same
        # inputs.
        order = index if ordered else np.random.default_rng(k).permutation(index)
        return {
            f"{name}.qweight": np.ascontiguousarray(in_words(codes(n, k, bits), bits).T),
            f"{name}.qzeros": in_words(codes(k // 32, n, bits), bits),
            f"{name}.scales": scales(k // 32, n),
            f"{name}.g_idx": order,
        }

    return tensors


def gptq_settings(bits: int) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": 32,
        "desc_act": True,
        "sym": False,
        "checkpoint_format": "gptq_v2",
    }


def awq(name: str, n: int, k: int) -> Tensors:
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        f"{name}.qweight": in_words(codes(k, n, 4).reshape(k, -1, 8)[..., order].reshape(k, n), 4),
        f"{name}.qzeros": in_words(codes(k // 32, n, 4), 4),
        f"{name}.scales": scales(k // 32, n),
    }


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}


def mlx(name: str, n: int, k: int) -> Tensors:
    return {
        f"{name}.weight": in_words(codes(n, k, 4), 4).view(np.uint32),
        f"{name}.scales": scales(n, k // 64),
        f"{name}.biases": -scales(n, k // 64),
    }


def write(
    folder: Path,
    make: Callable[[str, int, int], Tensors],
    settings: Any,
    matrices: dict[str, tuple[int, int]] | None = None,
) -> Path:
    folder.mkdir()
    tensors: Tensors = {"up.bias": np.linspace(-1, 1, INNER, dtype=np.float32)}
    for name, (n, k) in (matrices or shapes()).items():
        tensors |= make(name, n, k)
    safetensors.save_file(tensors, folder / "model.safetensors")
    where = "quantization_config" if "quant_method" in settings else "quantization"
    (folder / "config.json").write_text(json.dumps({where: settings}))
    return folder


KINDS: dict[str, tuple[Callable[[str, int, int], Tensors], Any, str, list[str]]] = {
    "compressed-tensors": (
        compressed_tensors,
        COMPRESSED_TENSORS,
        "int4/32, symmetric, kept",
        ["MatMulNBits"],
    ),
    "gptq": (gptq(4, True), gptq_settings(4), "int4/32, zero points, kept", ["MatMulNBits"]),
    "gptq 8 bits": (gptq(8, True), gptq_settings(8), "int8/32, zero points, kept", ["MatMulNBits"]),
    "awq": (awq, AWQ, "int4/32, zero points, kept", ["MatMulNBits"]),
    "mlx": (
        mlx,
        {"group_size": 64, "bits": 4},
        "int4/64, terms, kept",
        ["MatMulNBits", "ReduceSum"],
    ),
    "gptq act-order": (
        gptq(4, False),
        gptq_settings(4),
        "int4/32, zero points, kept",
        ["Gather", "MatMulNBits"],
    ),
}


def outputs(model: Path, x: Any) -> Any:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_model_computes_what_its_floats_do(graph: Path, tmp_path: Path, kind: str) -> None:
    make, settings, scheme, operators = KINDS[kind]
    folder = write(tmp_path / "folder", make, settings)
    oe.save(graph, tmp_path / "float", folder)
    report = oe.save(
        graph, tmp_path / "kept", folder, quantize=oe.Quantize("keep", accuracy_level=0)
    )
    assert [matrix["scheme"] for matrix in report.quantized] == [scheme] * 3
    assert report.verified
    x = RANDOM.standard_normal((2, 3, WIDTH), dtype=np.float32)
    kept, wanted = (outputs(tmp_path / name / "model.onnx", x) for name in ("kept", "float"))
    assert np.abs(kept - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert oe.verify(tmp_path / "kept/model.onnx", against=folder).ok
    made = {node.op_type for node in nodes(tmp_path / "kept/model.onnx")}
    assert set(operators) <= made


@pytest.mark.parametrize("parts", [[1280], [1288, 1536]])
@pytest.mark.parametrize("kind", ["gptq", "gptq 8 bits", "awq"])
def test_words_that_run_across_a_large_file_give_the_same_codes(
    tmp_path: Path, kind: str, parts: list[int]
) -> None:
    """Check large weights, alone and joined, which are read in tiles, unlike small ones."""
    rows, k = sum(parts), 2048
    make, settings, *_ = KINDS[kind]
    folder = tmp_path / "folder"
    folder.mkdir()
    tensors = {name: tensor for n in parts for name, tensor in make(f"{n}", n, k).items()}
    safetensors.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    keys = [f"{n}.weight" for n in parts]
    checkpoint = oe.open_checkpoint(folder)
    weight = np.concatenate([checkpoint[key].numpy() for key in keys])
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Transpose", ["joined"], ["turned"], perm=[1, 0]),
            onnx.helper.make_node("MatMul", ["x", "turned"], ["product"]),
            onnx.helper.make_node("Tanh", ["product"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, k])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, rows])],
        [onnx.TensorProto(name="joined", data_type=1, dims=[rows, k])],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )
    how = oe.Mapping(map={"derived": {"joined": {"concat": keys, "dim": 0}}})
    exact = oe.Quantize("keep", accuracy_level=0)
    report = oe.save(model, tmp_path / "kept", folder, mapping=how, quantize=exact)
    assert len(report.quantized) == 1
    x = RANDOM.standard_normal((1, k), dtype=np.float32) / 32
    wanted = np.tanh(x @ weight.T)
    kept = outputs(tmp_path / "kept/model.onnx", x)
    assert np.abs(kept - wanted).max() < 1e-5
    assert np.abs(wanted).mean() > 0.01
    assert oe.verify(tmp_path / "kept/model.onnx", against=folder).ok


def nodes(model: Path) -> Any:
    onnx = pytest.importorskip("onnx")
    return onnx.load(model, load_external_data=False).graph.node


def test_layers_of_one_input_share_the_order_of_its_columns(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", gptq(4, False), gptq_settings(4))
    oe.save(graph, tmp_path / "kept", folder, quantize="keep")
    made = [node.op_type for node in nodes(tmp_path / "kept/model.onnx")]
    assert made.count("MatMulNBits") == 3
    into_products = [
        node.input[0]
        for node in nodes(tmp_path / "kept/model.onnx")
        if node.op_type == "MatMulNBits"
    ]
    assert len(set(into_products)) == 2


def test_other_codes_are_found_by_a_verification(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", compressed_tensors, COMPRESSED_TENSORS)
    oe.save(graph, tmp_path / "kept", folder, quantize="keep")
    tensors = safetensors.load_file(folder / "model.safetensors")
    tensors["down.weight_packed"] = tensors["down.weight_packed"].copy()
    tensors["down.weight_packed"][7, 3] ^= 4
    safetensors.save_file(tensors, folder / "model.safetensors")
    report = oe.verify(tmp_path / "kept/model.onnx", against=folder)
    assert [finding.tensor for finding in report.findings] == ["down.weight.codes"]


def test_the_same_bytes_are_written_by_any_number_of_threads(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", gptq(4, False), gptq_settings(4))
    found = []
    for threads in (1, 3):
        out = tmp_path / str(threads)
        oe.save(graph, out, folder, quantize="keep", layout="single", threads=threads)
        found.append((out / "model.onnx.data").read_bytes())
    assert found[0] == found[1]


def test_what_cannot_be_kept_becomes_floats_or_the_scheme(graph: Path, tmp_path: Path) -> None:
    """Check groups of 8 columns, which are too small for every node."""
    settings = gptq_settings(4) | {"group_size": 8}

    def small_groups(name: str, n: int, k: int) -> Tensors:
        return {
            f"{name}.qweight": np.ascontiguousarray(in_words(codes(n, k, 4), 4).T),
            f"{name}.qzeros": in_words(codes(k // 8, n, 4), 4),
            f"{name}.scales": scales(k // 8, n),
            f"{name}.g_idx": np.arange(k, dtype=np.int32) // 8,
        }

    folder = write(tmp_path / "folder", small_groups, settings)
    report = oe.save(graph, tmp_path / "floats", folder, quantize="keep")
    assert not report.quantized
    reasons = {weight["weight"]: weight["reason"] for weight in report.floats}
    assert "groups of 8 columns" in reasons["gate.weight.transposed"]
    report = oe.save(graph, tmp_path / "int8", folder, quantize="keep, int8/32")
    assert {matrix["scheme"] for matrix in report.quantized} == {"int8/32, symmetric, nearest"}
    assert all("groups of 8 columns" in matrix["unkept"] for matrix in report.quantized)


LINKED = {
    "compressed-tensors": (compressed_tensors, COMPRESSED_TENSORS),
    "mlx": (mlx, {"group_size": 64, "bits": 4}),
}


@pytest.mark.parametrize("kind", LINKED)
def test_codes_that_nodes_take_as_they_are_can_be_linked(
    graph: Path, tmp_path: Path, kind: str
) -> None:
    make, settings = LINKED[kind]
    folder = write(tmp_path / "folder", make, settings)
    before = (folder / "model.safetensors").read_bytes()
    oe.save(graph, tmp_path / "float", folder)
    keep = oe.Quantize("keep", accuracy_level=0)
    planned = oe.plan(graph, path=folder, weights=folder, quantize=keep, layout="link")
    report = oe.save(graph, folder, folder, quantize=keep, layout="link")
    of_codes = sum(n * k // 2 for n, k in shapes().values())
    assert report.linked_bytes == of_codes + INNER * 4  # plus the bias
    assert (planned.bytes, planned.linked_bytes) == (report.bytes, report.linked_bytes)
    assert {tensor.file for tensor in report.tensors if tensor.slot.endswith(".codes")} == {
        "model.safetensors"
    }
    assert (folder / "model.onnx.data").stat().st_size == report.bytes < of_codes
    x = RANDOM.standard_normal((2, 3, WIDTH), dtype=np.float32)
    kept, wanted = outputs(folder / "model.onnx", x), outputs(tmp_path / "float/model.onnx", x)
    assert np.abs(kept - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert oe.verify(folder / "model.onnx").ok
    against = oe.verify(folder / "model.onnx", against=folder)
    assert against.ok
    assert against.linked == 4

    again = oe.save(graph, folder, folder, quantize=keep, layout="link", overwrite=True)
    assert again.linked_bytes == report.linked_bytes
    assert [file.name for file in folder.glob("*.data")] == ["model.onnx.1.data"]
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_changed_byte_of_a_linked_model_is_found(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", compressed_tensors, COMPRESSED_TENSORS)
    oe.save(graph, folder, folder, quantize="keep", layout="link")
    data = folder / "model.onnx.data"
    content = bytearray(data.read_bytes())
    content[5] ^= 1
    data.write_bytes(content)
    for against in (None, folder):
        report = oe.verify(folder / "model.onnx", against=against)
        assert [finding.tensor for finding in report.findings] == ["gate.weight.scales"] * (
            1 if against is None else 2
        )


def test_weights_that_no_file_has_as_they_are_kept_are_written(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", gptq(4, False), gptq_settings(4))
    report = oe.save(graph, folder, folder, quantize="keep", layout="link")
    assert report.linked_bytes == INNER * 4
    assert report.bytes > sum(n * k // 2 for n, k in shapes().values())
    assert oe.verify(folder / "model.onnx", against=folder).ok
    with pytest.raises(oe.InvalidArgumentError, match="keep the codes of the checkpoint"):
        oe.save(graph, folder, folder, quantize="int4", layout="link", overwrite=True)


def test_there_must_be_codes_to_keep(graph: Path, tmp_path: Path) -> None:
    state = {name: tensor.detach().numpy() for name, tensor in Layers().state_dict().items()}
    safetensors.save_file(state, tmp_path / "floats.safetensors")
    with pytest.raises(oe.InvalidArgumentError, match="no codes to keep"):
        oe.save(graph, tmp_path / "out", tmp_path / "floats.safetensors", quantize="keep")


def test_codes_can_be_quantized_anew_from_their_floats(graph: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", gptq(4, True), gptq_settings(4))
    report = oe.save(graph, tmp_path / "out", folder, quantize="int8/32")
    assert {matrix["scheme"] for matrix in report.quantized} == {"int8/32, symmetric, nearest"}


class Experts(torch.nn.Module):
    """Two experts whose matrices are stacked. Matrices with the same input are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = torch.nn.Parameter(torch.zeros(2, 2 * INNER, WIDTH))
        self.down = torch.nn.Parameter(torch.zeros(2, WIDTH, INNER))
        self.up = torch.nn.Module()
        self.up.bias = torch.nn.Parameter(torch.zeros(INNER))

    def forward(self, x: Any) -> Any:
        made = torch.zeros_like(x)
        for gate_up, down in zip(self.gate_up, self.down, strict=True):
            gate, up = torch.nn.functional.linear(x, gate_up).chunk(2, -1)
            made = made + torch.nn.functional.linear(torch.tanh(gate) * (up + self.up.bias), down)
        return torch.tanh(made).sum(-1) * x[..., 0]


STACKED = [{"stack": [f"{e}.{name}.weight" for e in range(2)], "dim": 0} for name in ("gate", "up")]
JOINED = [{"concat": [f"{e}.gate.weight", f"{e}.up.weight"], "dim": 0} for e in range(2)]
EXPERTS: dict[str, Any] = {
    "stacked, then joined": {"concat": STACKED, "dim": 1},
    "joined, then stacked": {"stack": JOINED, "dim": 0},
}


@pytest.mark.parametrize("kind", ["compressed-tensors", "gptq", "mlx"])
@pytest.mark.parametrize("way", EXPERTS)
def test_joined_experts_keep_their_codes(tmp_path: Path, kind: str, way: str) -> None:
    make, settings, scheme, _ = KINDS[kind]
    experts = {f"{e}.{name}": shape for e in range(2) for name, shape in shapes().items()}
    folder = write(tmp_path / "folder", make, settings, experts)
    oe.torch.export(Experts().eval(), (torch.zeros(2, 3, WIDTH),), tmp_path / "graph")
    graph = tmp_path / "graph/model.onnx"
    down = {"stack": ["0.down.weight", "1.down.weight"], "dim": 0}
    how = oe.Mapping(map={"derived": {"gate_up": EXPERTS[way], "down": down}})
    oe.save(graph, tmp_path / "float", folder, mapping=how)
    exact = oe.Quantize("keep", accuracy_level=0)
    report = oe.save(graph, tmp_path / "kept", folder, mapping=how, quantize=exact)
    assert {matrix["scheme"] for matrix in report.quantized} == {scheme}
    assert sum(node.op_type == "MatMulNBits" for node in nodes(tmp_path / "kept/model.onnx")) == 4
    x = RANDOM.standard_normal((2, 3, WIDTH), dtype=np.float32)
    kept, wanted = (outputs(tmp_path / name / "model.onnx", x) for name in ("kept", "float"))
    assert np.abs(kept - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert oe.verify(tmp_path / "kept/model.onnx", against=folder).ok


def test_joined_matrices_of_unlike_codes_become_floats(tmp_path: Path) -> None:
    def mixed(name: str, n: int, k: int) -> Tensors:
        return gptq(8 if name == "1.gate" else 4, True)(name, n, k)

    experts = {f"{e}.{name}": shape for e in range(2) for name, shape in shapes().items()}
    settings = gptq_settings(4) | {"dynamic": {r"+:1\.gate": {"bits": 8}}}
    folder = write(tmp_path / "folder", mixed, settings, experts)
    oe.torch.export(Experts().eval(), (torch.zeros(2, 3, WIDTH),), tmp_path / "graph")
    down = {"stack": ["0.down.weight", "1.down.weight"], "dim": 0}
    how = oe.Mapping(map={"derived": {"gate_up": EXPERTS["joined, then stacked"], "down": down}})
    report = oe.save(
        tmp_path / "graph/model.onnx", tmp_path / "out", folder, mapping=how, quantize="keep"
    )
    assert len(report.quantized) == 2
    reasons = {weight["weight"]: weight["reason"] for weight in report.floats}
    assert "have different codes" in reasons["gate_up"]
