"""Tests of saves that keep the blocks of GGUF files as codes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("ml_dtypes")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gguf_files import Array, Blocks, write_gguf  # noqa: E402

WIDTH, ROWS = 256, 48
RANDOM = np.random.default_rng(0)

# The number of the type, the values and bytes of a block, the upper bytes of its float16 numbers,
# and the scheme.
TYPES: dict[str, tuple[int, int, int, list[int], str]] = {
    "Q4_0": (2, 32, 18, [1], "int4/32, symmetric, kept"),
    "Q4_1": (3, 32, 20, [1, 3], "int4/32, terms, kept"),
    "Q5_0": (6, 32, 22, [1], "int8/32, symmetric, kept"),
    "Q5_1": (7, 32, 24, [1, 3], "int8/32, terms, kept"),
    "Q8_0": (8, 32, 34, [1], "int8/32, symmetric, kept"),
    "Q2_K": (10, 256, 84, [81, 83], "int4/16, terms, kept"),
    "Q3_K": (11, 256, 110, [109], "int4/16, symmetric, kept"),
    "Q4_K": (12, 256, 144, [1, 3], "int4/32, terms, kept"),
    "Q5_K": (13, 256, 176, [1, 3], "int8/32, terms, kept"),
    "Q6_K": (14, 256, 210, [209], "int8/16, symmetric, kept"),
    "IQ2_XXS": (16, 256, 66, [1], "int8/32, symmetric, kept"),
    "IQ2_XS": (17, 256, 74, [1], "int8/16, symmetric, kept"),
    "IQ3_XXS": (18, 256, 98, [1], "int8/32, symmetric, kept"),
    "IQ1_S": (19, 256, 50, [1], "int8/32, symmetric, kept"),
    "IQ4_NL": (20, 32, 18, [1], "int8/32, symmetric, kept"),
    "IQ3_S": (21, 256, 110, [1], "int8/32, symmetric, kept"),
    "IQ2_S": (22, 256, 82, [1], "int8/16, symmetric, kept"),
    "IQ4_XS": (23, 256, 136, [1], "int8/32, symmetric, kept"),
    "IQ1_M": (29, 256, 56, [55], "int8/16, symmetric, kept"),
    "TQ1_0": (34, 256, 54, [53], "int4/128, symmetric, kept"),
    "TQ2_0": (35, 256, 66, [65], "int4/128, symmetric, kept"),
    "MXFP4": (39, 32, 17, [], "int8/32, symmetric, kept"),
    "NVFP4": (40, 64, 36, [], "int8/16, symmetric, kept"),
    "Q1_0": (41, 128, 18, [1], "int4/128, symmetric, kept"),
    "Q2_0": (42, 64, 18, [1], "int4/64, symmetric, kept"),
}


def blocks(kind: str, *shape: int) -> Blocks:
    number, values, size, halves, _ = TYPES[kind]
    made = RANDOM.integers(0, 256, (int(np.prod(shape)) // values, size), dtype=np.uint8)
    made[:, halves] = made[:, halves] & 0x83 | 0x20  # scales of about 0.01, of both signs
    if kind == "MXFP4":
        made[:, 0] = RANDOM.integers(118, 124, len(made))
    return Blocks(number, shape, made.tobytes())


def write(path: Path, kind: str) -> Path:
    """Write a Llama with one layer, whose matrices have the given type."""
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    tensors: dict[str, Array | Blocks] = {
        f"blk.0.{name}.weight": blocks(kind, WIDTH, WIDTH) for name in square
    }
    tensors["token_embd.weight"] = blocks(kind, ROWS, WIDTH)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        tensors[f"{name}.weight"] = np.ones(WIDTH, np.float32)
    numbers = {
        "block_count": 1,
        "context_length": 32,
        "embedding_length": WIDTH,
        "feed_forward_length": WIDTH,
        "attention.head_count": 4,
        "attention.head_count_kv": 4,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata: dict[str, Any] = {"general.architecture": "llama"}
    metadata |= {f"llama.{key}": value for key, value in numbers.items()}
    return write_gguf(path, metadata, tensors)


class Projections(torch.nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, torch.nn.Linear(WIDTH, WIDTH, bias=False))


class Llama(torch.nn.Module):
    """A module with the matrices of a Llama, but without attention."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.Module()
        layer.self_attn = Projections("q_proj", "k_proj", "v_proj", "o_proj")
        layer.mlp = Projections("gate_proj", "up_proj", "down_proj")
        layer.input_layernorm = torch.nn.RMSNorm(WIDTH)
        layer.post_attention_layernorm = torch.nn.RMSNorm(WIDTH)
        self.model = torch.nn.Module()
        self.model.norm = torch.nn.RMSNorm(WIDTH)
        self.model.embed_tokens = torch.nn.Embedding(ROWS, WIDTH)
        self.model.layers = torch.nn.ModuleList([layer])

    def forward(self, ids: Any) -> Any:
        layer: Any = self.model.layers[0]
        attention, mlp = layer.self_attn, layer.mlp
        rows = layer.input_layernorm(self.model.embed_tokens(ids))
        made = attention.o_proj(torch.tanh(attention.q_proj(rows) + attention.k_proj(rows)))
        made = layer.post_attention_layernorm(made + attention.v_proj(rows))
        made = mlp.down_proj(torch.tanh(mlp.gate_proj(made)) * torch.tanh(mlp.up_proj(made)))
        return torch.nn.functional.linear(self.model.norm(made), self.model.embed_tokens.weight)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("graph")
    ids = torch.zeros(1, 6, dtype=torch.int64)
    oe.torch.export(Llama().eval(), (ids,), folder)
    return folder / "model.onnx"


def outputs(folder: Path) -> Any:
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    ids = np.array([[0, 5, 9, 47, 33, 2]])
    return session.run(None, {session.get_inputs()[0].name: ids})[0]


def operators(folder: Path) -> list[str]:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("kind", TYPES)
def test_the_blocks_of_every_type_are_kept(graph: Path, tmp_path: Path, kind: str) -> None:
    file = write(tmp_path / "model.gguf", kind)
    oe.save(graph, tmp_path / "float", file)
    exact = oe.Quantize("keep", accuracy_level=0)
    report = oe.save(graph, tmp_path / "kept", file, quantize=exact)
    assert [matrix["scheme"] for matrix in report.quantized] == [TYPES[kind][-1]] * 8
    assert report.verified
    made = operators(tmp_path / "kept")
    assert (made.count("MatMulNBits"), made.count("GatherBlockQuantized")) == (8, 1)
    kept, wanted = outputs(tmp_path / "kept"), outputs(tmp_path / "float")
    assert np.abs(wanted).mean() > 1e-4
    assert np.linalg.norm(kept - wanted) < 2e-5 * np.linalg.norm(wanted)
    assert oe.verify(tmp_path / "kept" / "model.onnx", against=file).ok


def test_other_blocks_are_found_by_a_verification(graph: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", "Q4_K")
    oe.save(graph, tmp_path / "kept", file, quantize="keep")
    data = bytearray(file.read_bytes())
    at = len(data) - 3 * 4 * WIDTH - 1  # the last code of the embedding
    data[at] ^= 0x10
    file.write_bytes(data)
    report = oe.verify(tmp_path / "kept" / "model.onnx", against=file)
    assert [finding.tensor.rpartition(".")[0] for finding in report.findings] == [
        "model.embed_tokens.weight"
    ] * len(report.findings)
    assert not report.ok


def test_blocks_can_be_quantized_anew_or_become_floats(graph: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", "Q5_K")
    report = oe.save(graph, tmp_path / "int4", file, quantize="int4/32")
    assert "int4/32, zero points, 5 steps" in {matrix["scheme"] for matrix in report.quantized}
    report = oe.save(graph, tmp_path / "float", file)
    assert not report.quantized


def test_a_model_of_codes_alone_is_verified_though_keys_are_left(tmp_path: Path) -> None:
    class Query(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Module()
            self.model.layers = torch.nn.ModuleList([torch.nn.Module()])
            self.model.layers[0].self_attn = Projections("q_proj")

        def forward(self, rows: Any) -> Any:
            layer: Any = self.model.layers[0]
            return torch.tanh(layer.self_attn.q_proj(rows))

    oe.torch.export(Query().eval(), (torch.zeros(3, WIDTH),), tmp_path / "graph")
    file = write(tmp_path / "model.gguf", "Q4_K")
    out = tmp_path / "kept"
    graph = tmp_path / "graph" / "model.onnx"
    oe.save(graph, out, file, quantize="keep", mapping=oe.Mapping(unmatched="skip"))
    assert oe.verify(out / "model.onnx", against=file).ok
    write(file, "Q4_K")  # other codes
    report = oe.verify(out / "model.onnx", against=file)
    assert {finding.tensor.rpartition(".")[0] for finding in report.findings} == {
        "model.layers.0.self_attn.q_proj.weight"
    }
