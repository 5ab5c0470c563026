"""Tests that encoders and decoders are exported as graphs that run one after the other."""

import json
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe
from onnx_external._comparing import chaining

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

LANGUAGES = {"<|en|>": 50, "<|de|>": 51}
SIZES: dict[str, Any] = dict(
    vocab_size=96, d_model=32, num_mel_bins=8, max_source_positions=10, max_target_positions=32,
    encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=2, suppress_tokens=[], begin_suppress_tokens=[],
)  # fmt: skip


class Exported:
    """A multilingual Whisper, its folder and its graphs."""

    def __init__(self, path: Path) -> None:
        self.folder, self.out = path / "whisper", path / "out"
        made = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES))
        torch.manual_seed(7)
        with torch.no_grad():
            for value in made.parameters():
                value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
        self.model = made.eval()
        made.save_pretrained(self.folder)
        file = self.folder / "generation_config.json"
        settings = json.loads(file.read_text()) | {"lang_to_id": LANGUAGES, "is_multilingual": True}
        file.write_text(json.dumps(settings))
        self.report = oe.transformers.export(self.folder, self.out, fsync=False, progress=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("whisper"))


def test_whisper_s_prefill_is_not_the_detection_of_the_language(exported: Exported) -> None:
    report = exported.report
    assert list(report.graphs) == ["encoder_model", "decoder_model", "decoder_with_past_model"]
    caches = [f"0.{part}.{side}" for part in ("decoder", "encoder") for side in ("key", "value")]
    assert {f"present.{cache}" for cache in caches} <= report.outputs["decoder_model"].keys()
    assert {f"past_key_values.{cache}" for cache in caches} <= report.inputs[
        "decoder_with_past_model"
    ].keys()
    for graph in ("decoder_model", "decoder_with_past_model"):
        assert report.inputs[graph]["input_ids"] == "int64[batch_size, sequence_length]"
    checked = dict.fromkeys(report.graphs, 2) | {"decoder_with_past_model": 7}
    assert report.checked == checked
    assert "decoder_input_ids" not in report.omitted_inputs


def test_the_folder_has_the_names_that_optimum_and_transformers_js_know(exported: Exported) -> None:
    step = exported.report.inputs["decoder_with_past_model"]
    sides = [f"{part}.{side}" for part in ("decoder", "encoder") for side in ("key", "value")]
    # optimum passes the cache by position
    assert [name for name in step if "." in name] == [f"past_key_values.0.{each}" for each in sides]
    assert "float32[batch_size, 4, past_sequence_length, 8]" in step.values()
    first = exported.report.inputs["decoder_model"]
    assert first["encoder_hidden_states"] == "float32[batch_size, encoder_sequence_length, 32]"
    assert list(exported.report.outputs["encoder_model"]) == ["last_hidden_state"]
    assert (exported.out / "model.onnx_data").is_file()


def test_the_graphs_are_run_one_after_another_before_they_are_saved(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers import _checking

    steps = [f"{name}.onnx" for name in [*exported.report.graphs, *["decoder_with_past_model"] * 2]]
    assert exported.report.chain == steps
    found = run_chain(exported)
    assert found.chain == steps and not found.notes

    def swapped(graph: str, outputs: Any) -> dict[str, Any]:
        given = chaining.handed_on(graph, outputs)
        key, value = (f"past_key_values.0.decoder.{side}" for side in ("key", "value"))
        return given | ({key: given[value], value: given[key]} if key in given else {})

    monkeypatch.setattr(_checking, "handed_on", swapped)
    with pytest.raises(
        oe.ExportError,
        match=r"past_model\.onnx is wrong for the outputs of encoder_model\.onnx and ",
    ):
        run_chain(exported)


def run_chain(exported: Exported) -> Any:
    from onnx_external._comparing.running import Session
    from onnx_external.transformers._checking import CheckedGraphs, Judging
    from onnx_external.transformers._compared import Folder

    models = {name: exported.out / f"{name}.onnx" for name in exported.report.graphs}
    folder = Folder(models, exported.folder, None, None, None)
    sessions = {
        name: Session(path, ["CPUExecutionProvider"], path.name) for name, path in models.items()
    }
    references = {name: each[0] for name, each in folder.graphs().items()}
    found = CheckedGraphs()
    Judging([], {}, lambda _: folder, 0, {})._run_chain(folder, sessions, references, found)
    return found


def test_a_graph_that_gives_less_than_the_next_one_takes_is_named() -> None:
    key, form = "0.key", "float32[batch, 4, past, 8]"
    step = "decoder_with_past_model.onnx"
    takes = {
        "decoder_model": {"input_ids": "int64[batch, 2]"},
        "decoder_with_past_model": {f"past_key_values.{key}": form},
    }
    gives: dict[str, dict[str, str]] = {
        "decoder_model": {"logits": "float32[1]"},
        "decoder_with_past_model": {},
    }
    assert chaining.missing_links(takes, gives) == [
        f"{step} takes past_key_values.0.key, which decoder_model.onnx does not return"
    ]
    gives["decoder_model"] = {f"present.{key}": "float32[batch, 4, sequence, 8]"}
    assert chaining.missing_links(takes, gives) == []
    for other in ("float16[batch, 4, past, 8]", "float32[batch, 2, past, 8]", "float32[batch, 4]"):
        gives["decoder_model"] = {f"present.{key}": other}
        (told,) = chaining.missing_links(takes, gives)
        said = (
            f"{step} takes past_key_values.0.key as {form}, but decoder_model.onnx returns {other}"
        )
        assert told == said
    gives["decoder_model"] = {
        f"present.{key}": "float32[batch, 4, Max(0, words), 8 // Max(1, words)]"
    }
    assert chaining.missing_links(takes, gives) == []
    assert (
        chaining.missing_links(
            {"decoder_with_past_model": takes["decoder_with_past_model"]},
            {"decoder_with_past_model": {}},
        )
        == []
    )


def test_states_are_handed_on_by_the_names_of_transformers_js() -> None:
    names = {
        "cache.layers.0.conv_states": "conv.0",
        "cache_params.layers.1.conv_states.1": "conv.1.1",
        "past_key_values.layers.2.recurrent_states": "recurrent.2",
        "past_key_values.layers.3.keys": "key_values.3.key",
    }
    from onnx_external.transformers import _naming

    for path, name in names.items():
        past, present = _naming.input_names([path], "recurrent")[path], f"present_{name}"
        present = present.replace("present_key_values", "present")
        assert past == f"past_{name}" and _naming.output_name(path, "recurrent") == present
        assert chaining.handed_on("prefill", {present: 1}) == {past: 1}
        assert chaining.present_of(past) == present
    assert _naming.input_names(["cache.layers.2.recurrent_states"])[
        "cache.layers.2.recurrent_states"
    ] == ("past_ssm.2")
    assert not chaining.is_past("input_ids") and not chaining.is_present("logits")


def test_a_folder_whose_graphs_do_not_go_together_is_refused(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from onnx_external.transformers import _choosing

    monkeypatch.setattr(_choosing, "missing_links", lambda *_: ["decode.onnx takes x", "more"])
    monkeypatch.setattr(_choosing.Choice, "trace", lambda _: None)
    with pytest.raises(
        oe.ExportError, match=r"^decode\.onnx takes x \(and 1 more\), so no runtime "
    ):
        oe.transformers.export(exported.folder, tmp_path, check=False, progress=False)
    assert not any(tmp_path.iterdir())


PROMPT = [2, 50, 60, 63]


def wanted(exported: Exported, features: Any, prompt: list[int], count: int) -> list[list[int]]:
    """Return transformers' tokens after a prompt, up to the end-of-sequence token."""
    ids = torch.tensor([prompt] * len(features))
    base, settings = transformers.GenerationMixin, {"max_new_tokens": count, "do_sample": False}
    with torch.no_grad():
        given = {"input_features": torch.tensor(features), "decoder_input_ids": ids}
        found = base.generate(exported.model, **given, **settings)
    rows = found[:, len(prompt) :].tolist()
    return [row[: row.index(2)] if 2 in row else row for row in rows]


def test_generate_gives_the_tokens_of_transformers_behind_a_prompt_of_several(
    exported: Exported,
) -> None:
    features = np.random.default_rng(3).standard_normal((2, 8, 20)).astype(np.float32)
    found = oe.generate(exported.out, PROMPT, 6, input_features=features)
    assert found == wanted(exported, features, PROMPT, 6) and any(found)
    again = oe.generate(exported.out, [PROMPT] * 2, 6, input_features=torch.tensor(features))
    assert again == found
    begun = oe.generate(exported.out, [], 6, input_features=features)
    assert begun == wanted(exported, features, [2], 6)


def test_the_command_takes_arrays_and_prints_what_the_decoder_adds(
    exported: Exported, tmp_path: Path
) -> None:
    features = np.random.default_rng(4).standard_normal((1, 8, 20)).astype(np.float32)
    np.save(tmp_path / "x.npy", features)
    found = oe.generate(exported.out, PROMPT, 4, input_features=features)
    told = ["--input", f"input_features={tmp_path / 'x.npy'}", "-n", "4"]
    tokens = ["--tokens", ",".join(map(str, PROMPT))]
    done = commands.run("generate", exported.out, *told, *tokens)
    assert done.returncode == 0 and done.stdout == ",".join(map(str, found[0])) + "\n"
    done = commands.run("generate", exported.out, *told, *tokens, "--json")
    assert json.loads(done.stdout) == [{"tokens": found[0]}]
    (tmp_path / "x.npy").write_text("no array")
    done = commands.run("generate", exported.out, *told)
    assert done.returncode == 1 and "x.npy: not a NumPy array (.npy)" in done.stderr


def test_generate_says_what_the_encoder_and_the_decoder_take(exported: Exported) -> None:
    features = np.zeros((2, 8, 20), np.float32)
    for prompt, given, why in (
        (
            [2],
            {},
            r"the encoder needs the input input_features; pass inputs=\{.input_features.: array",
        ),
        (
            [2],
            {"pixel_values": features},
            "pixel_values: the inputs of the encoder are input_features",
        ),
        (
            [[2], [2, 3]],
            {"input_features": features},
            "2 prompts of 1, 2 tokens: expected 2 prompts",
        ),
        (
            [[2]] * 3,
            {"input_features": features},
            "3 prompts of 1, 1, 1 tokens: expected 2 prompts",
        ),
        ([], {}, "pass a prompt"),
    ):
        with pytest.raises(oe.InvalidArgumentError, match=why):
            oe.generate(exported.out, prompt, inputs=given)


def test_a_folder_without_all_graphs_of_a_pair_is_named(tmp_path: Path) -> None:
    (tmp_path / "encoder_model.onnx").write_bytes(b"")
    with pytest.raises(
        oe.NotFoundError, match=r"contains encoder_model\.onnx, but not decoder_model\.onnx"
    ):
        oe.generate(tmp_path, [1])
    with pytest.raises(
        oe.InvalidArgumentError, match=r"x: .* has no encoder_model\.onnx for these"
    ):
        oe.generate(tmp_path / "other", [1], inputs={"x": np.zeros(1)})
