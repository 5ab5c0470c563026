"""Tests of exports of GGUF files, compared with transformers' model with the same weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from commands import run
from gguf_files import Array, write_gguf
from numpy.typing import NDArray
from safetensors.numpy import save_file

import onnx_external as oe

WIDTH, HEADS, PAIRS, INNER = 32, 4, 2, 48
HEAD = WIDTH // HEADS
PIECES = ["\u2581", "l", "o", "w", "e", "r", "lo", "low", "\u2581low", "er"]
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{each:02X}>" for each in range(256)), *PIECES]
KINDS = [2, 3, 3] + [6] * 256 + [1] * len(PIECES)
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
CONFIG = {
    "vocab_size": len(TOKENS),
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": PAIRS,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.block_count": 1,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": PAIRS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": HEAD,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.scores": [0.0] * 259 + [-float(each) for each in range(len(PIECES))],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": "{{ messages[0].content }}",
}


def model() -> Any:
    torch.manual_seed(0)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).eval()
    with torch.no_grad():
        for each in made.parameters():
            each.copy_(torch.randn_like(each) * 0.2 + (each.dim() == 1))
    return made


def paired(rows: Array, heads: int) -> Array:
    """Return the rows of q or k in GGUF order, which alternates between the halves of each head."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def stored(made: Any) -> dict[str, Array]:
    """Return the tensors of a model with the names and layout of GGUF."""
    state = {name: each.numpy() for name, each in made.state_dict().items()}
    found = {
        f"blk.0.{short}.weight": state[f"model.layers.0.{name}.weight"]
        for short, name in NAMES.items()
    }
    for short, heads in (("attn_q", HEADS), ("attn_k", PAIRS)):
        found[f"blk.0.{short}.weight"] = paired(found[f"blk.0.{short}.weight"], heads)
    found["token_embd.weight"] = state["model.embed_tokens.weight"]
    found["output_norm.weight"] = state["model.norm.weight"]
    return found


def logits(path: Path, ids: list[int]) -> NDArray[np.float32]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    given: dict[str, Any] = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[None],
    }
    for value in session.get_inputs():
        given.setdefault(value.name, np.zeros((1, PAIRS, 0, HEAD), np.float32))
    taken = {value.name: given[value.name] for value in session.get_inputs()}
    return np.asarray(session.run(["logits"], taken)[0])


def distance(path: Path, made: Any) -> float:
    """Return the relative difference between the logits of a graph and of a model."""
    ids = [1, 260, 262, 3, 265, 7, 9, 11]
    wanted = made(torch.tensor([ids])).logits.detach().numpy()
    return float(np.linalg.norm(logits(path, ids) - wanted) / np.linalg.norm(wanted))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """Return a file, the folder to which it was exported, and the report."""
    folder = tmp_path_factory.mktemp("gguf")
    file = write_gguf(folder / "m.gguf", KEYS, stored(model()))
    return file, folder / "out", oe.transformers.export(file, folder / "out")


def test_the_graph_computes_what_the_model_does(exported: tuple[Path, Path, Any]) -> None:
    _, out, report = exported
    assert report.checked["model"] > 0
    assert distance(out / "model.onnx", model()) < 5e-6


def test_config_and_tokenizer_lie_beside_the_graph(exported: tuple[Path, Path, Any]) -> None:
    _, out, report = exported
    files = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert files | {"chat_template.jinja", "genai_config.json"} == set(report.copied)
    assert json.loads((out / "config.json").read_text())["rms_norm_eps"] == 1e-5
    read = transformers.AutoTokenizer.from_pretrained(out)
    assert read.convert_ids_to_tokens(read("low lower")["input_ids"]) == [
        "<s>", "\u2581low", "\u2581low", "er",
    ]  # fmt: skip
    assert read.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x"


def test_it_generates_and_is_validated_against_the_file(exported: tuple[Path, Path, Any]) -> None:
    file, out, _ = exported
    assert len(oe.generate(out, "low lower", max_new_tokens=3)) == 1
    assert oe.validate(out, file).ok


def test_the_command_takes_a_file(exported: tuple[Path, Path, Any], tmp_path: Path) -> None:
    line = ("export", exported[0], "-o", tmp_path / "out", "--no-check")
    done = run(*line)
    assert done.returncode == 0 and "tokenizer.json" in done.stdout, done.stderr
    again = run(*line)
    assert again.returncode == 1 and "exists" in again.stderr


def test_halves_stay_as_they_are_stored(tmp_path: Path) -> None:
    made = model()
    with torch.no_grad():
        for each in made.parameters():
            each.copy_(each.half())
    halves = {
        name: each.astype(np.float16) if each.ndim == 2 else each
        for name, each in stored(made).items()
    }
    file = write_gguf(tmp_path / "m.gguf", KEYS, halves)
    report = oe.transformers.export(file, tmp_path / "out", check=False)
    assert report.save.bytes < file.stat().st_size
    assert distance(tmp_path / "out/model.onnx", made) < 5e-6


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", KEYS, stored(model()))
    report = oe.transformers.export(tmp_path, tmp_path / "out", dry_run=True)
    assert report.model_class == "LlamaForCausalLM"
    write_gguf(tmp_path / "n.gguf", KEYS, stored(model()))
    with pytest.raises(oe.InvalidArgumentError, match=r"m\.gguf, n\.gguf; give one"):
        oe.transformers.export(tmp_path, tmp_path / "out", dry_run=True)


def test_a_config_beside_the_file_is_taken(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", KEYS, stored(model()))
    model().config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    oe.transformers.export(tmp_path, tmp_path / "out", check=False)
    assert distance(tmp_path / "out/model.onnx", model()) < 5e-6


def test_without_keys_of_a_tokenizer_there_is_none_and_a_note(tmp_path: Path) -> None:
    keys = {name: each for name, each in KEYS.items() if not name.startswith("tokenizer")}
    file = write_gguf(tmp_path / "m.gguf", keys, stored(model()))
    report = oe.transformers.export(file, tmp_path / "out", dry_run=True)
    assert any("has no tokenizer" in note for note in report.notes)


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", KEYS | {"llama.block_count": 2}, stored(model()))
    with pytest.raises(oe.Error, match=r"m\.gguf"):
        oe.transformers.export(file, tmp_path / "out")
    file = write_gguf(
        tmp_path / "m.gguf", KEYS | {"general.architecture": "zebra"}, stored(model())
    )
    with pytest.raises(oe.Error, match="zebra"):
        oe.transformers.export(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_lora_is_merged_into_its_base(tmp_path: Path) -> None:
    made = model()
    base = write_gguf(tmp_path / "base.gguf", KEYS, stored(made))
    draw = np.random.default_rng(0)
    first = draw.normal(size=(2, WIDTH)).astype(np.float32)
    second = draw.normal(size=(WIDTH, 2)).astype(np.float32)
    keys = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": 6.0,
    }
    pair = {
        "blk.0.attn_q.weight.lora_a": first,
        "blk.0.attn_q.weight.lora_b": paired(second, HEADS),
    }
    adapter = write_gguf(tmp_path / "lora.gguf", keys, pair)
    report = oe.transformers.export(adapter, tmp_path / "out", base=base, check=False)
    with torch.no_grad():
        made.model.layers[0].self_attn.q_proj.weight += torch.from_numpy(3 * second @ first)
    assert distance(tmp_path / "out/model.onnx", made) < 5e-6
    assert any("an adapter, merged into 1 weights" in note for note in report.save.notes)
    with pytest.raises(oe.NotFoundError, match=r"lora\.gguf: an adapter for"):
        oe.transformers.export(adapter, tmp_path / "out2")


def test_an_adapter_of_peft_is_merged_into_a_file(tmp_path: Path) -> None:
    made = model()
    base = write_gguf(tmp_path / "base.gguf", KEYS, stored(made))
    draw = np.random.default_rng(0)
    first, second = (draw.normal(size=each).astype(np.float32) for each in ((2, WIDTH), (WIDTH, 2)))
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file(
        {f"{module}.lora_A.weight": first, f"{module}.lora_B.weight": second},
        folder / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    oe.transformers.export(folder, tmp_path / "out", base=base, check=False)
    with torch.no_grad():
        made.model.layers[0].self_attn.q_proj.weight += torch.from_numpy(3 * second @ first)
    assert distance(tmp_path / "out/model.onnx", made) < 5e-6
