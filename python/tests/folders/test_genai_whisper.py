"""Tests of Whisper for GenAI: an encoder that outputs keys and values, and a decoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

SIZES: dict[str, Any] = dict(
    vocab_size=40, d_model=16, num_mel_bins=4, max_source_positions=1500, max_target_positions=32,
    encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=24, decoder_ffn_dim=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[],
)  # fmt: skip
PROMPT = [1, 7, 9]
WORDS = ["<pad>", "<s>", "</s>", *map(chr, range(60, 97))]
FEATURES = {"n_fft": 400, "hop_length": 160, "feature_size": 4, "chunk_length": 30}


class Exported:
    """A Whisper, its folder, and its exports for genai and transformers.js."""

    def __init__(self, path: Path) -> None:
        self.folder, self.out = path / "whisper", path / "out"
        made = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES))
        torch.manual_seed(7)
        with torch.no_grad():
            for name, value in made.named_parameters():
                is_scale = value.dim() == 1 and not name.endswith("bias")
                value.copy_(torch.randn(value.shape) * 0.5 + (1.0 if is_scale else 0.0))
        self.model = made.eval()
        made.save_pretrained(self.folder)
        self.write("preprocessor_config.json", FEATURES)
        model = {"type": "BPE", "vocab": {each: n for n, each in enumerate(WORDS)}, "merges": []}
        self.write("tokenizer.json", {"version": "1.0", "model": model})
        self.write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
        self.report = self.export(self.out, ["genai", "transformers.js"])

    def write(self, name: str, document: Any) -> None:
        (self.folder / name).write_text(json.dumps(document))

    def export(self, out: Path, clients: list[str]) -> Any:
        more = {"fsync": False, "progress": False}
        return oe.transformers.export(self.folder, out, clients=clients, **more)

    def document(self, name: str) -> Any:
        return json.loads((self.out / name).read_text())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("genai"))


def features() -> Any:
    return np.random.default_rng(3).standard_normal((1, 4, 3000)).astype(np.float32)


def wanted(exported: Exported, count: int) -> list[int]:
    given = {"input_features": torch.tensor(features()), "decoder_input_ids": [PROMPT]}
    given["decoder_input_ids"] = torch.tensor(given["decoder_input_ids"])
    base, settings = transformers.GenerationMixin, {"max_new_tokens": count, "do_sample": False}
    with torch.no_grad():
        row = base.generate(exported.model, **given, **settings)[0, len(PROMPT) :].tolist()
    return row[: row.index(2)] if 2 in row else row


def test_genai_gives_the_tokens_of_transformers(exported: Exported) -> None:
    og = pytest.importorskip("onnxruntime_genai")
    model = og.Model(str(exported.out))
    settings = og.GeneratorParams(model)
    settings.set_search_options(max_length=len(PROMPT) + 12)
    generator, given = og.Generator(model, settings), og.NamedTensors()
    given["input_features"], given["input_ids"] = features(), np.array([PROMPT], np.int32)
    generator.set_inputs(given)
    while not generator.is_done():
        generator.generate_next_token()
    found = generator.get_sequence(0).tolist()[len(PROMPT) :]
    expected = wanted(exported, 12)
    assert found[: len(expected)] == expected and len(set(expected)) > 2


def test_the_encoder_gives_what_the_decoder_keeps_of_it(exported: Exported) -> None:
    assert list(exported.report.graphs) == [
        "encoder_model", "decoder_with_past_model", "decoder_model_merged"
    ]  # fmt: skip
    caches = [f"present.0.encoder.{side}" for side in ("key", "value")]
    assert list(exported.report.outputs["encoder_model"]) == ["last_hidden_state", *caches]
    assert oe.generate(exported.out, PROMPT, 12, input_features=features()) == [
        wanted(exported, 12)
    ]
    for graph in exported.report.graphs.values():
        assert oe.verify(graph.model, against=exported.folder).ok


def test_genai_is_told_the_names_of_the_graphs_and_how_sounds_are_read(exported: Exported) -> None:
    document = exported.document("genai_config.json")
    model = document["model"]
    assert model["type"] == "whisper" and model["context_length"] == 32
    assert document["search"] == {
        "max_length": 32, "past_present_share_buffer": False, "do_sample": False
    }  # fmt: skip
    for part, name in (("encoder", "encoder_model"), ("decoder", "decoder_with_past_model")):
        assert model[part]["filename"] == f"onnx/{name}.onnx"
        graph = onnx.load(exported.out / model[part]["filename"], load_external_data=False).graph
        for side in ("inputs", "outputs"):
            names = {each.name for each in getattr(graph, side.removesuffix("s"))}
            assert {each.replace("%d", "0") for each in model[part][side].values()} <= names
    steps = exported.document("audio_processor_config.json")["feature_extraction"]["sequence"]
    attributes = [each["operation"].get("attrs") for each in steps]
    assert attributes == [
        None,
        {"n_fft": 400, "frame_length": 400, "hop_length": 160},
        {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": 4},
    ]


def test_the_prompt_is_compared_behind_the_encoder(exported: Exported) -> None:
    from onnx_external._comparing.branches import CrossEncoder, FirstStep
    from onnx_external._comparing.running import Session
    from onnx_external.transformers._checking import CheckedGraphs, Judging
    from onnx_external.transformers._compared import Folder
    from onnx_external.transformers._reference import TransformersReference

    names = ("encoder_model", "decoder_with_past_model")
    paths = {name: exported.out / "onnx" / f"{name}.onnx" for name in names}
    encoder, step = (Session(path, ["CPUExecutionProvider"], path.name) for path in paths.values())
    folder = Folder({**paths, "decoder_model": exported.folder}, exported.folder, None, None, None)
    whole = folder.model

    def run(encoder: CrossEncoder) -> CheckedGraphs:
        sessions = {names[0]: encoder, "decoder_model": FirstStep(step, encoder), names[1]: step}
        references = {
            name: TransformersReference(part, step.output_names)
            for name, part in zip(sessions, (whole.get_encoder(), whole, whole), strict=True)
        }
        found = CheckedGraphs()
        Judging([], {}, lambda _: folder, 0, {})._run_chain(folder, sessions, references, found)
        return found

    class Wrong(CrossEncoder):
        def run(self, feed: Any, what: str) -> Any:
            found = super().run(feed, what)
            self.caches = {name: -value for name, value in self.caches.items()}
            return found

    assert run(CrossEncoder(encoder)).chain == [f"{names[0]}.onnx", *[f"{names[1]}.onnx"] * 4]
    with pytest.raises(
        oe.ExportError, match=r"past_model\.onnx is wrong for the outputs of encoder_model"
    ):
        run(Wrong(encoder))


def test_validate_compares_the_keys_and_values_of_the_encoder(exported: Exported) -> None:
    report = oe.validate(exported.out / "onnx/encoder_model.onnx", exported.folder)
    assert report.ok


def test_keys_that_depend_on_the_prompt_are_refused() -> None:
    from onnx_external.transformers import _crossing
    from onnx_external.transformers._saving import Graph

    ir = pytest.importorskip("onnx_ir")

    def graph(inputs: list[str], outputs: list[str], operator: str) -> Graph:
        values = [ir.Value(name=name) for name in inputs]
        nodes = [ir.Node("", operator, values[-1:]) for _ in outputs]
        for node, name in zip(nodes, outputs, strict=True):
            node.outputs[0].name = name
        made = ir.Graph(values, [node.outputs[0] for node in nodes], nodes=nodes)
        model = ir.Model(made, ir_version=10)
        return Graph(_crossing.described(model, {}), {}, None)  # type: ignore[arg-type]

    encoder = graph(["input_features"], ["last_hidden_state"], "Relu")
    prompt = graph(["encoder_hidden_states", "input_ids"], ["present.0.encoder.key"], "Neg")
    with pytest.raises(oe.ExportError, match="encoder's output depend on input_ids, so the"):
        _crossing.crossed(encoder, prompt)
