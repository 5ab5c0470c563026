"""Tests of the quality loss of a quantized model: figures, limits, and the worst layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_external as oe
from onnx_external._commands import validate as command
from onnx_external._comparing.quality import Limits, QualitySums

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((64, 32)).astype(np.float32)
X = RANDOM.standard_normal((40, 64)).astype(np.float32)


def plain(output: str, factor: float = 1.0) -> Any:
    """Return a model that multiplies its input by a matrix."""
    weight = numpy_helper.from_array((WEIGHT * factor).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], [output])]
    forms = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
        for name, size in (("x", 64), (output, 32))
    ]
    graph = helper.make_graph(nodes, "g", forms[:1], forms[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def quantized(folder: Path, output: str, form: Any = "matmulnbits") -> Path:
    """Return the model in int4, including its head."""
    onnx.save(plain(output), folder / "float.onnx")
    scheme = oe.Quantize("int4", head="int4", form=form)
    oe.save(folder / "float.onnx", folder / "out/model.onnx", quantize=scheme, progress=False)
    return folder / "out/model.onnx"


@pytest.mark.parametrize("form", ["matmulnbits", "qdq"])
def test_logits_of_a_quantized_model_are_judged_by_kl(tmp_path: Path, form: str) -> None:
    path = quantized(tmp_path, "logits", form)
    report = oe.validate(path, plain("logits"), X, max_kl=1.0)
    quality = report.graphs[0].quality
    assert report.ok and quality is not None and quality.positions == len(X)
    assert quality.kl is not None and 0 < quality.kl < 1 and quality.perplexity is None
    assert 0.5 < (quality.agreement or 0) <= 1 and 0.01 < (quality.error or 0) < 0.15
    assert report.outputs[0].beyond and report.outputs[0].by_quality
    assert "KL divergence" in report.sentence and "quantized" in report.sentence
    document = json.loads(json.dumps(report.to_dict()))["graphs"][0]["quality"]
    assert document["ok"] and document["kl"] == quality.kl

    strict = oe.validate(path, plain("logits"), X, max_kl=quality.kl / 2)
    assert not strict.ok and "is more than" in strict.sentence
    assert not oe.validate(path, plain("logits"), X, min_agreement=1.01).ok


def test_outputs_without_logits_are_judged_by_their_relative_error(tmp_path: Path) -> None:
    path = quantized(tmp_path, "y")
    report = oe.validate(path, plain("y"), X)
    quality = report.graphs[0].quality
    assert report.ok and quality is not None and quality.kl is None
    got = X @ WEIGHT * 1.5
    expected = np.sqrt(np.square(got / 1.5 - got).sum() / np.square(got).sum())
    wrong = oe.validate(path, plain("y", 1.5), X)
    assert not wrong.ok and "relative error" in wrong.sentence
    assert wrong.graphs[0].quality is not None
    assert wrong.graphs[0].quality.error == pytest.approx(expected, rel=0.05)
    assert not oe.validate(path, plain("y"), X, max_error=0.01).ok


def test_a_tolerance_that_is_given_still_judges_a_quantized_model(tmp_path: Path) -> None:
    path = quantized(tmp_path, "logits")
    report = oe.validate(path, plain("logits"), X, atol=1e-4)
    assert not report.ok and report.outputs[0].is_wrong
    assert oe.validate(path, plain("logits"), X, atol=50.0).ok


def test_two_models_with_the_same_codes_are_held_to_the_tolerance(tmp_path: Path) -> None:
    path = quantized(tmp_path, "logits")
    report = oe.validate(path, path, X)
    assert report.ok and report.graphs[0].quality is None
    assert not report.outputs[0].by_quality


def test_nan_of_a_quantized_model_is_wrong(tmp_path: Path) -> None:
    path = quantized(tmp_path, "logits")
    want = X @ WEIGHT
    want[3, 4] = np.nan
    assert not oe.validate(path, {"logits": want}, X, max_kl=10.0).ok


def test_the_command_has_limits_and_prints_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = quantized(tmp_path, "logits")
    np.savez(tmp_path / "set.npz", x=X, logits=X @ WEIGHT)
    arguments = [str(path), "-a", str(tmp_path / "set.npz"), "-q", "--max-kl"]
    assert command.main([*arguments, "2"]) == 0
    capsys.readouterr()
    assert command.main([*arguments, "1e-9"]) == 1
    assert "  quality: KL divergence" in capsys.readouterr().out


def test_figures_are_those_of_their_definitions() -> None:
    got, want = RANDOM.standard_normal((2, 2, 5, 7))
    got, want = np.stack([got, got + 1]), np.stack([want, want * 2])
    following = np.array([[1, 2, 3, 4], [6, 5, 4, 3]])
    sums = QualitySums("a test", Limits())
    sums.add("logits", got.reshape(4, 5, 7)[:2], want.reshape(4, 5, 7)[:2], following)
    found = sums.found()
    one, other = got.reshape(4, 5, 7)[:2], want.reshape(4, 5, 7)[:2]
    p, q = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (other, one))
    assert found.kl == pytest.approx((p * np.log(p / q)).sum(-1).mean())
    assert found.agreement == (p.argmax(-1) == q.argmax(-1)).mean()
    chosen = np.take_along_axis(q[:, :-1], following[..., None], -1)
    assert found.perplexity == pytest.approx(np.exp(-np.log(chosen).mean()))
    assert found.error == pytest.approx(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a model folder with a tokenizer, its int4 export, and a text file."""
    torch = pytest.importorskip("torch", minversion="2.11")
    transformers = pytest.importorskip("transformers", minversion="5.20")
    pytest.importorskip("onnxscript")
    tokenizers = pytest.importorskip("tokenizers")
    root = tmp_path_factory.mktemp("quality")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(root / "llama")
    vocabulary = {f"w{number}": number for number in range(64)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    fast.save_pretrained(root / "llama")
    text = " ".join(f"w{number}" for number in RANDOM.integers(0, 64, 301))
    (root / "text.txt").write_text(text)
    options = {"check": False, "fsync": False, "progress": False, "quantize": "int4"}
    oe.transformers.export(root / "llama", root / "out", **options)
    return root / "llama", root / "out", root / "text.txt"


def test_a_text_gives_the_perplexity_of_both_sides(llama: tuple[Path, Path, Path]) -> None:
    folder, out, text = llama
    report = oe.validate(out, folder, text=text)
    quality = report.graphs[0].quality
    assert report.ok and quality is not None
    assert quality.tokens == quality.positions == 300 and quality.source == "text.txt"
    assert 55 < (quality.reference_perplexity or 0) < 75
    assert quality.perplexity == pytest.approx(quality.reference_perplexity, rel=0.05)
    assert quality.perplexity != quality.reference_perplexity
    assert "300 tokens of text.txt" in report.sentence


def test_text_is_refused_where_nothing_reads_it(
    llama: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    folder, out, text = llama
    with pytest.raises(oe.InvalidArgumentError, match="text: only for a transformers folder"):
        oe.validate(plain("logits"), plain("logits"), X, text=text)
    (tmp_path / "one.txt").write_text("w1")
    with pytest.raises(oe.InvalidArgumentError, match="has 1 tokens"):
        oe.validate(out, folder, text=tmp_path / "one.txt")
    with pytest.raises(oe.ReadWriteError, match="cannot be read"):
        oe.validate(out, folder, text=tmp_path / "none.txt")


def test_diagnose_names_the_quantized_module_that_loses_most(
    llama: tuple[Path, Path, Path],
) -> None:
    folder, out, _ = llama
    report = oe.diagnose(out / "model.onnx", folder)
    (told,) = [each for each in report.notes if "loses most" in each]
    named = told.partition("loses most is ")[2].partition(" (")[0]
    assert named in [each.name for each in report.wrong]
    assert any(each.startswith("The model is quantized (") for each in report.notes)
