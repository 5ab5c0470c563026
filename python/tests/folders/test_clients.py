"""Tests of folders for certain programs (`--for`)."""

import json
import shutil
from pathlib import Path
from typing import Any

import commands
import pytest

import onnx_external as oe
from onnx_external._comparing.branches import Branch
from onnx_external._folders.preconditions import requested

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

T5 = dict(
    vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2, decoder_start_token_id=0,
    pad_token_id=0, eos_token_id=39,
)  # fmt: skip
LLAMA = dict(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, bos_token_id=1,
    num_attention_heads=2, max_position_embeddings=32, eos_token_id=2, pad_token_id=0,
)  # fmt: skip


def saved(folder: Path, name: str, **sizes: Any) -> Any:
    made = getattr(transformers, name)
    model = made(made.config_class(**sizes))
    torch.manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
    model.eval().save_pretrained(folder)
    return model


class Exported:
    """A T5, its folder, and its export for transformers.js."""

    def __init__(self, path: Path) -> None:
        self.folder, self.out = path / "t5", path / "out"
        self.model = saved(self.folder, "T5ForConditionalGeneration", **T5)
        self.report = oe.transformers.export(
            self.folder,
            self.out,
            fsync=False,
            progress=False,
            clients=["transformers.js"],
            variants=["fp32", "int8"],
        )

    def graph(self, name: str) -> Any:
        return onnx.load(self.out / "onnx" / name, load_external_data=False).graph


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("t5"))


def test_a_merged_decoder_has_one_if_and_no_weight_twice(exported: Exported) -> None:
    graph = exported.graph("decoder_model_merged.onnx")
    (node,) = graph.node
    assert node.op_type == "If" and list(node.input) == ["use_cache_branch"]
    assert not any(attribute.g.initializer for attribute in node.attribute)
    places = [
        tuple((entry.key, entry.value) for entry in each.external_data)
        for each in graph.initializer
        if each.external_data
    ]
    assert len(places) == len(set(places)) > 5
    assert {value for place in places for key, value in place if key == "location"} == {
        "decoder_model_merged.onnx_data"
    }
    matrices = [each for each in graph.initializer if len(each.dims) == 2]
    assert len({bytes(each.raw_data) or str(each.external_data) for each in matrices}) == len(
        matrices
    )
    sides = [f"{part}.{side}" for part in ("decoder", "encoder") for side in ("key", "value")]
    names = [each.name for each in graph.input]
    assert {"input_ids", "encoder_attention_mask", "encoder_hidden_states"} < set(names)
    caches = [name for name in names if "." in name]
    assert caches == [f"past_key_values.0.{each}" for each in sides]
    assert [each.name for each in graph.output] == [
        "logits", *(f"present.0.{side}" for side in sides)
    ]  # fmt: skip


def test_both_branches_are_compared_with_the_model(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert exported.report.checked["decoder_model_merged"] == 4
    from onnx_external.transformers import _checking

    def wrong(merged: Any, *names: str) -> dict[str, Branch]:
        return {name: Branch(merged, False) for name in names}  # the prompt's branch for both

    monkeypatch.setattr(_checking, "branches", wrong)
    with pytest.raises(
        oe.ExportError, match=r"decoder_model_merged\.onnx is wrong for the outputs"
    ):
        oe.transformers.export(
            exported.folder, tmp_path / "out", progress=False, clients="transformers.js"
        )
    assert not (tmp_path / "out").exists()


def test_generate_runs_the_branches_of_a_merged_decoder(exported: Exported) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        found = exported.model.generate(ids, max_new_tokens=6, do_sample=False)[0, 1:].tolist()
    wanted = found[: found.index(39)] if 39 in found else found
    assert oe.generate(exported.out, ids[0].tolist(), 6) == [wanted]


@pytest.mark.parametrize("name", ["encoder_repetition_penalty", "encoder_no_repeat_ngram_size"])
def test_settings_that_look_at_what_the_encoder_reads_are_applied(
    exported: Exported, name: str
) -> None:
    file = exported.out / "generation_config.json"
    before, ids = file.read_text(), [[5, 6, 7, 8], [30, 31]]
    given = {"input_ids": torch.tensor([ids[0], [*ids[1], 0, 0]])}
    given["attention_mask"] = (given["input_ids"] != 0).long()
    usual = oe.generate(exported.out, ids, 6)
    changed = usual
    for value in (8, 1) if name.endswith("size") else (4.0, 9.0, 0.2):
        settings = {**json.loads(before), name: value}
        with torch.no_grad():
            found = exported.model.generate(**given, max_new_tokens=6, **{name: value})
        rows = [row[1:].tolist() for row in found]
        wanted = [row[: row.index(39)] if 39 in row else row for row in rows]
        try:
            file.write_text(json.dumps(settings))
            changed = oe.generate(exported.out, ids, 6)
        finally:
            file.write_text(before)
        assert changed == wanted
    assert changed != usual


def test_codes_of_both_branches_are_compared_and_run(exported: Exported, tmp_path: Path) -> None:
    names = ["encoder_model_quantized", "decoder_model_merged_quantized"]
    assert list(exported.report.quality) == names
    assert "top-1 agreement" in exported.report.quality[names[1]]
    shutil.copytree(exported.out, tmp_path / "out")
    for name in ("encoder_model", "decoder_model_merged"):
        (tmp_path / f"out/onnx/{name}.onnx").unlink()
    assert oe.generate(tmp_path / "out", [5, 6, 7, 8], 6)


def test_transformers_js_finds_graphs_data_and_settings_by_their_names(exported: Exported) -> None:
    names = ["encoder_model", "decoder_model_merged"]
    graphs = {f"{name}{suffix}.onnx" for name in names for suffix in ("", "_quantized")}
    files = {path.name for path in (exported.out / "onnx").iterdir()}
    manifests = {name.replace(".onnx", ".manifest.json") for name in graphs}
    assert files == graphs | {f"{name}_data" for name in graphs} | manifests
    config = json.loads((exported.out / "config.json").read_text())
    assert config["transformers.js_config"] == {
        "dtype": "fp32",
        "use_external_data_format": dict.fromkeys(graphs, 1),
    }
    assert config["model_type"] == "t5"
    assert exported.report.variants == {
        "fp32": names,
        "q8": [f"{name}_quantized" for name in names],
    }
    assert [Path(each.model).stem for each in exported.report.save.models] == [
        *exported.report.graphs
    ]
    for graph in exported.report.graphs.values():
        assert oe.verify(graph.model, against=exported.folder).ok


def test_one_folder_serves_transformers_js_and_genai(tmp_path: Path) -> None:
    saved(tmp_path / "llama", "LlamaForCausalLM", **LLAMA)
    words = {"<s>": 1, "</s>": 2, "a": 3}
    vocabulary = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "a"},
    }
    (tmp_path / "llama/tokenizer.json").write_text(json.dumps(vocabulary))
    processor = {"image_processor": {"image_processor_type": "X"}, "processor_class": "Y"}
    (tmp_path / "llama/processor_config.json").write_text(json.dumps(processor))
    line = ("export", tmp_path / "llama", "-o", tmp_path / "out", "--for", "transformers.js,genai")
    done = commands.run(*line, "--for", "optimum", "--no-fsync", "--no-check")
    assert done.returncode == 0, done.stderr
    genai = json.loads((tmp_path / "out/genai_config.json").read_text())
    assert genai["model"]["decoder"]["filename"] == "onnx/model.onnx"
    flat = json.loads((tmp_path / "out/preprocessor_config.json").read_text())
    assert flat == {"image_processor_type": "X", "processor_class": "Y"}
    assert (tmp_path / "out/onnx/model.onnx_data").is_file()
    assert oe.generate(tmp_path / "out", [1, 3], 2)
    again = commands.run(*line)
    assert again.returncode == 1 and "onnx/model.onnx: exists" in again.stderr


def test_a_decoder_with_states_is_one_graph_with_the_names_of_transformers_js(
    tmp_path: Path,
) -> None:
    layers = dict(
        num_hidden_layers=2, num_key_value_heads=2, layer_types=["conv", "full_attention"]
    )
    model = saved(tmp_path / "lfm2", "Lfm2ForCausalLM", **{**LLAMA, **layers})
    more = {"clients": "transformers.js", "fsync": False, "progress": False}
    report = oe.transformers.export(tmp_path / "lfm2", tmp_path / "out", **more)
    assert list(report.graphs) == ["model"] and report.checked["model"] == 4
    graph = onnx.load(tmp_path / "out/onnx/model.onnx", load_external_data=False).graph
    (node,) = graph.node
    assert node.op_type == "If" and list(node.input) == ["use_cache_branch"]
    key, value = "past_key_values.1.key", "past_key_values.1.value"
    states = [each.name for each in graph.input if "." in each.name]
    assert states == ["past_conv.0", key, value]
    names = [each.name for each in graph.output]
    assert names == ["logits", "present_conv.0", "present.1.key", "present.1.value"]
    assert report.outputs["model"]["logits"] == "float32[batch_size, sequence_length, 40]"
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        found = model.generate(ids, max_new_tokens=6, do_sample=False)[0, 4:].tolist()
    wanted = found[: found.index(2)] if 2 in found else found
    assert oe.generate(tmp_path / "out", ids[0].tolist(), 6) == [wanted]


def refuse_fixed_sizes(folder: Path, out: Path, error: type[oe.Error], words: str) -> None:
    """Require that an export for transformers.js with fixed sizes fails with an error."""
    with pytest.raises(error, match=words):
        oe.transformers.export(
            folder, out, clients="transformers.js", dynamic=False, optimize=False, progress=False
        )
    assert not out.exists()


def test_a_decoder_whose_states_transformers_js_does_not_pass_is_refused(tmp_path: Path) -> None:
    sizes = dict(vocab_size=40, hidden_size=16, state_size=4, num_hidden_layers=1, time_step_rank=4)
    saved(tmp_path / "mamba", "MambaForCausalLM", **sizes)
    words = r"state past_conv\.0.* to a model of the type mamba"
    refuse_fixed_sizes(tmp_path / "mamba", tmp_path / "out", oe.ExportError, words)


def test_a_decoder_with_fixed_sizes_is_refused_for_transformers_js(tmp_path: Path) -> None:
    saved(tmp_path / "llama", "LlamaForCausalLM", **LLAMA)
    words = r"cache that grows.*leave out dynamic=False"
    refuse_fixed_sizes(tmp_path / "llama", tmp_path / "out", oe.InvalidArgumentError, words)


def test_decoders_to_which_transformers_js_passes_other_inputs_are_refused() -> None:
    from onnx_external.transformers._transformers_js import refuse_decoder

    refuse_decoder("qwen3_next", ["past_conv.0", "past_recurrent.0", "past_key_values.1.key"])
    refuse_decoder("llama", ["input_ids", "past_key_values.0.key"])
    for kind, name in (("olmo_hybrid", "past_conv.0"), ("lfm2", "past_conv.0.1")):
        with pytest.raises(oe.ExportError, match=f"{name}, .*{kind}"):
            refuse_decoder(kind, ["input_ids", name])
    with pytest.raises(oe.ExportError, match=r"qwen3_5_text.* three rows of position_ids"):
        refuse_decoder("qwen3_5_text", ["past_conv.0", "past_recurrent.0"])


def test_a_decoder_of_a_type_that_transformers_js_misreads_is_refused_before_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers._choosing import Choice

    layers = dict(num_hidden_layers=1, layer_types=["full_attention"], head_dim=8)
    saved(tmp_path / "qwen", "Qwen3_5ForCausalLM", **{**LLAMA, **layers})
    monkeypatch.setattr(Choice, "trace", lambda _: pytest.fail("a trace has started"))
    with pytest.raises(oe.ExportError, match=r"qwen3_5_text.* three rows of position_ids"):
        oe.transformers.export(
            tmp_path / "qwen", tmp_path / "out", clients="transformers.js", progress=False
        )
    assert not (tmp_path / "out").exists()


def test_a_folder_for_openvino_has_operators_of_onnx_alone(tmp_path: Path) -> None:
    saved(tmp_path / "llama", "LlamaForCausalLM", **LLAMA)
    for clients, domains in (([], {"", "com.microsoft"}), (["openvino"], {""})):
        out = tmp_path / "-".join(["out", *clients])
        more = {"clients": clients, "check": False, "fsync": False, "progress": False}
        oe.transformers.export(tmp_path / "llama", out, **more)
        graph = onnx.load(out / "model.onnx", load_external_data=False).graph
        assert {node.domain for node in graph.node} == domains


def test_layers_of_hybrids_have_the_names_that_transformers_js_reads(tmp_path: Path) -> None:
    from onnx_external.transformers import _transformers_js

    made = tmp_path / "made"
    made.mkdir()
    new, old = ["linear_attention", "full_attention"], ["mamba", "attention"]
    for kind, wanted in (("granitemoehybrid", old), ("qwen3_5_text", new)):
        config = {"model_type": kind, "layer_types": new}
        (tmp_path / "config.json").write_text(json.dumps(config))
        (file,) = _transformers_js.files(tmp_path, made)
        assert json.loads(file.read_text())["layer_types"] == wanted


def test_variants_for_a_browser_have_embeddings_in_floats(tmp_path: Path) -> None:
    given: dict[str, Any] = dict.fromkeys(("graphs", "task", "dtype", "quantize"))
    given |= {"layout": "single", "overwrite": False, "dry_run": True, "variants": "q4,fp16"}
    (tmp_path / "config.json").write_text("{}")
    for clients, wanted in (([], "int4"), (["transformers.js"], oe.Quantize("int4", head="float"))):
        found = requested([tmp_path], tmp_path / "out", {**given, "clients": clients})
        assert [each.quantize for each in found.variants] == [wanted, None]


def test_what_a_client_cannot_open_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "llama", "LlamaForCausalLM", **LLAMA)
    for clients, more, why in (
        ("word", {}, "'word' is not one of the programs for clients=: fastembed, gen"),
        ("transformers.js", {"layout": "per-tensor"}, "which layout='per-tensor' does not create"),
        (
            ["genai"],
            {"check": False},
            r"genai needs tokenizer\.json, which the model's folder ",
        ),
    ):
        with pytest.raises(oe.Error, match=why):
            oe.transformers.export(
                tmp_path / "llama", tmp_path / "out", progress=False, clients=clients, **more
            )
    with pytest.raises(oe.InvalidArgumentError, match=r"onnx/; give the model's folder as the"):
        oe.transformers.export(tmp_path / "llama", tmp_path / "m.onnx", clients="transformers.js")
    assert not (tmp_path / "out").exists()
    done = commands.run("export", tmp_path / "llama", "-o", tmp_path / "out", "--for", "word")
    assert done.returncode == 1 and "programs for --for: fast" in done.stderr
